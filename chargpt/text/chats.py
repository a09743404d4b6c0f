"""Exported chats and mailboxes, as messages: who wrote each, and its text on one line.

Pictures, deleted messages and lines by the program itself ("Tom joined the group") are left out and counted. To add a kind of
chat, add how it begins to CHATS in formats.py, and its reader to READERS.
"""

import email
import email.policy
import html
import re
from collections.abc import Iterator
from email.message import EmailMessage

from chargpt.errors import UserError
from chargpt.text.formats import AUTHOR, CSV, DISCORD, MBOX, MESSAGE, TELEGRAM, TEXT, WHATSAPP, WHATSAPP_STAMP, Structure
from chargpt.text.records import LeftOut, Records, joined, lines_in, lines_of_objects, records_in, rows_in, values_in, whole

Messages = Iterator[tuple[int, str, str]]  # the line where each begins, its author, its text
MEDIA, SERVICE, UNREADABLE = "messages without text", "lines that nobody wrote", "mails that cannot be read"
# WhatsApp: what stands for a picture, in any language; a mark of direction is before what the program itself wrote.
OMITTED = re.compile(r"\u200e.*|<[^<>]{3,50}>|\S.*\.\w{2,4} \([^()]{4,40}\)|null")
DELETED = re.compile(
    r"(?i)((this message was|you) deleted( this message)?|(diese nachricht wurde|du hast diese nachricht) gelöscht|"
    r"(ce message a été|vous avez) supprimé( ce message)?|(se eliminó|eliminaste) este mensaje|mensagem apagada)\.?"
)
EDITED = re.compile(r"\s*(\u200e<[^<>]*>|<This message was edited>)$")
BY_DISCORD = re.compile(r"(Joined the server|Left the (group|channel)|(Added|Removed) .+ (to|from) the group|Pinned a message|"
                        r"Started a (call|thread).*|Changed the channel (name|icon).*)\.?")  # fmt: skip
MAIL = re.compile(r"From \S+ .*\d\d:\d\d:\d\d.*\d{4}")  # the line before a mail; its text has such a line with > before it
QUOTED = re.compile(  # the lines of an earlier mail, with the one that says whose they are
    r"^(?:(?:On|Am|Le|El|Il|Op|Em|Den) (?:(?!\n\n).){1,250}?:\s*\n(?=>)|[^\n]*:\n+(?=>))?(?:^>[^\n]*\n?)+",
    re.MULTILINE | re.DOTALL,
)
TAGS = re.compile(r"(?si)<(script|style).*?</\1>|<[^>]*>")


def messages_in(pieces: Iterator[str], kind: str, label: str, left_out: LeftOut) -> Records:
    """The messages as records with the fields author, text, and message, which is both on a line. `kind` is one of CHATS;
    `left_out` gets the lines of what is left out. Raises UserError."""
    for line, author, text in READERS[kind](pieces, label, left_out):
        author, text = " ".join(author.replace(":", " ").split()), " ".join(text.split())
        if text:
            yield line, {AUTHOR: author, TEXT: text, MESSAGE: f"{author}: {text}"}, ""
        else:
            left_out.setdefault(MEDIA, []).append(line)


def _blocks(
    pieces: Iterator[str], label: str, beginning: re.Pattern[str], *, after_blank: bool = False
) -> Iterator[tuple[int, re.Match[str], list[str]]]:
    """The parts of a text that begin with a line like `beginning`, after a blank one or anywhere: the number of that line, what
    matches there, and the lines that follow."""
    found, begins, lines = None, 0, list[str]()
    for number, line in enumerate(lines_in(pieces, label), 1):
        line = line.rstrip("\r")
        if (match := beginning.match(line)) and not (after_blank and lines and lines[-1]):
            if found:
                yield begins, found, lines
            found, begins, lines = match, number, []
        else:
            lines.append(line)
    if found:
        yield begins, found, lines


def _whatsapp(pieces: Iterator[str], label: str, left_out: LeftOut) -> Messages:
    """A message may have several lines; only the first has a date. A line with a date and no name is by the program."""
    for begins, stamp, lines in _blocks(pieces, label, WHATSAPP_STAMP):
        author, colon, first = stamp.string[stamp.end() :].partition(":")
        author, text = author.lstrip("~\u202f\u200e ").rstrip(), [first.removeprefix(" "), *lines]
        if not colon or len(author) > 60 or '"' in author or "“" in author:
            left_out.setdefault(SERVICE, []).append(begins)
        else:
            kept = [EDITED.sub("", one) for one in text if not (OMITTED.fullmatch(one) or DELETED.fullmatch(one.strip(" ‎")))]
            yield begins, author, "\n".join(kept)


def _telegram(pieces: Iterator[str], label: str, left_out: LeftOut) -> Messages:
    """One chat, or all of an account. A text with links or bold words is a list of pieces."""
    for line, value, source in values_in(whole(pieces, label), label):
        lines = lines_of_objects(value, source, line)
        are_all = isinstance(value, dict) and "chats" in value
        for message, _ in records_in(value, "chats.list.messages.type" if are_all else "messages.type"):
            at = lines.get(id(message), line)
            text = message.get("text") if isinstance(message, dict) else None
            text = joined(text) if isinstance(text, list) else text
            if not isinstance(message, dict) or not isinstance(text, str):
                what = "a message whose field 'text' is missing, or not a text"
                raise UserError(f"{label}: line {at:,}: {what}; correct it, or export the chat again, as JSON")
            if message.get("type") == "message":
                yield at, str(message.get("from") or "Deleted Account"), text
            else:
                left_out.setdefault(SERVICE, []).append(at)


def _discord(pieces: Iterator[str], label: str, left_out: LeftOut) -> Messages:
    """The columns Author and Content of DiscordChatExporter's CSV."""
    for line, row, _ in rows_in(pieces, Structure(kind=CSV, delimiter=","), ["Author", "Content"], label):
        if BY_DISCORD.fullmatch(row["Content"].strip()):
            left_out.setdefault(SERVICE, []).append(line)
        else:
            yield line, re.sub(r"#\d{1,4}$", "", row["Author"]), row["Content"]


def _mbox(pieces: Iterator[str], label: str, left_out: LeftOut) -> Messages:
    """The plain text of each mail, without what it quotes and its signature. Bytes outside ASCII are surrogate escapes."""
    for begins, _, lines in _blocks(pieces, label, MAIL, after_blank=True):
        try:
            message = email.message_from_string("\n".join(lines), EmailMessage, policy=email.policy.default)
            sender, body = message["from"].addresses[0], message.get_body(("plain", "html"))
            text = "" if body is None else body.get_content().replace("\r\n", "\n")
            if body is not None and body.get_content_subtype() == "html":
                text = html.unescape(TAGS.sub(" ", text))
        except Exception:  # of a damaged header or an unknown encoding: the email package has no error of its own
            left_out.setdefault(UNREADABLE, []).append(begins)
            continue
        text = QUOTED.sub("", re.sub(r"(?m)^>(?=From )", "", text))
        yield begins, sender.display_name or sender.username, re.split(r"(?m)^-- ?$", text)[0]


READERS = {WHATSAPP: _whatsapp, TELEGRAM: _telegram, DISCORD: _discord, MBOX: _mbox}

"""The messages of exported chats and mailboxes: who wrote each, and its text on one line. Pictures, deleted messages and lines
by the program itself ("Tom joined the group") are left out and counted."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from chargpt.errors import UserError
from chargpt.text import xml_rows
from chargpt.text.chats import AUTHOR, MESSAGE, TEXT, Form
from chargpt.text.json_records import join_texts, records_of
from chargpt.text.kind import Record, Structure, Text, blocks_in
from chargpt.text.table_rows import rows_in
from chargpt.text.tables import CSV
from chargpt.text.talks import OMITTED

Messages = Iterator[tuple[int, str | None, str]]  # the line where each begins, its author, None if it is by nobody, its text
MEDIA, SERVICE = "messages without text, left out", "lines that nobody wrote, left out"
UNREADABLE = "mails that cannot be read, left out"
DELETED = re.compile(
    r"(?i)((this message was|you) deleted( this message)?|(diese nachricht wurde|du hast diese nachricht) gelöscht|"
    r"(ce message a été|vous avez) supprimé( ce message)?|(se eliminó|eliminaste) este mensaje|mensagem apagada)\.?"
)
EDITED = re.compile(r"\s*(\u200e<[^<>]*>|<This message was edited>)$")
BY_DISCORD = re.compile(r"(Joined the server|Left the (group|channel)|(Added|Removed) .+ (to|from) the group|Pinned a message|"
                        r"Started a (call|thread).*|Changed the channel (name|icon).*)\.?")  # fmt: skip
BY_META = re.compile(r"(Liked a message|Reacted .{1,12} to your message|.{1,60} sent (an? .{1,20}|\d+ photos)\.)\s*")
MAIL = re.compile(r"From \S+ .*\d\d:\d\d:\d\d.*\d{4}")  # the line before a mail; its text has such a line with > before it
QUOTED = re.compile(  # the lines of an earlier mail, with the one that says whose they are
    r"^(?:(?:On|Am|Le|El|Il|Op|Em|Den) (?:(?!\n\n).){1,250}?:\s*\n(?=>)|[^\n]*:\n+(?=>))?(?:^>[^\n]*\n?)+",
    re.MULTILINE | re.DOTALL,
)
TAGS = re.compile(r"(?si)<(script|style).*?</\1>|<[^>]*>")
# What such a chat program writes between messages.
BETWEEN = re.compile(r"[-=*]{3,}.*|\W*(?:\w+\W{1,2})??\d{1,4}(\W{1,2}|년 )\d\d?(\W{1,2}|월 )\d{1,4}\b.{0,12}|Session \w+: .*")
# What they write behind a message, or the last one.
ATTACHED = re.compile(r"(?sm)^(?:\{(?:Attachments|Embed|Stickers|Reactions)\}|Tapbacks:|={9,}\nExported [^\n]*)\n.*")


def messages_in(read: Callable[[Text], Messages], text: Text) -> Iterator[Record]:
    """The messages as records; the field message is both others on a line, or the text alone if the author is a label."""
    for line, author, said in read(text):
        if author is None or not said.split():
            text.noted.setdefault(SERVICE if author is None else MEDIA, []).append(line)
            continue
        author, said = " ".join(author.replace(":", " ").split()), " ".join(said.split())
        message = said if AUTHOR in text.labels else spoken(author, said)
        yield Record(line, {AUTHOR: author, TEXT: said, MESSAGE: message})


def spoken(author: str, said: str) -> str:
    """A message on a line, as a model of a chat learns it; empty if nothing was said."""
    author, said = " ".join(author.replace(":", " ").split()), " ".join(said.split())
    return f"{author}: {said}" if said and author else said


def of_lines(form: Form, text: Text) -> Messages:
    """A message may have several lines; only the first has a time. A line with a time and no name is by the program."""
    for begins, stamp, lines in blocks_in(text, form.stamp):
        author, whole = form.author_of("\n".join([stamp.string[stamp.end() :], *lines]))
        author, said = author.lstrip("~\u202f\u200e ").rstrip(), ATTACHED.sub("", whole).removeprefix(" ").split("\n")
        said = [one for one in said if not BETWEEN.fullmatch(one)]
        kept = [EDITED.sub("", one) for one in said if not (OMITTED.fullmatch(one) or DELETED.fullmatch(one.strip(" ‎")))]
        yield begins, None if not author or '"' in author or "“" in author else author, "\n".join(kept)


def of_telegram(path: str, text: Text) -> Messages:
    """The messages on a path. A text with links or bold words is a list of pieces."""
    for line, message, _ in records_of(replace(text, wanted=(f"{path}.type",))):
        said = message.get("text") if isinstance(message, dict) else None
        said = join_texts(said) if isinstance(said, list) else said
        if not isinstance(message, dict) or not isinstance(said, str):
            what = "a message whose field 'text' is missing, or not a text"
            raise UserError(f"{text.label}: line {line:,}: {what}; correct it, or export the chat again, as JSON")
        yield line, str(message.get("from") or "Deleted Account") if message.get("type") == "message" else None, said


def of_meta(text: Text) -> Messages:
    """The messages of Messenger or Instagram, the oldest first, which is the last one in the file."""
    found = [(line, message) for line, message, _ in records_of(replace(text, wanted=("messages.type",)))]
    for line, message in sorted(reversed(found), key=lambda one: one[1].get("timestamp_ms") or one[1].get("timestamp") or 0):
        author, said = message.get("sender_name") or message.get("senderName"), message.get("content") or message.get("text")
        is_by_meta = "call_duration" in message or BY_META.fullmatch(str(said))
        yield line, None if is_by_meta else str(author or "Deleted Account"), str(said or "")


def of_discord(text: Text) -> Messages:
    """The columns Author and Content of DiscordChatExporter's CSV."""
    table = replace(text, structure=Structure(kind=CSV, delimiter=","), wanted=("Author", "Content"))
    for line, row, _ in rows_in(table):
        is_by_discord = BY_DISCORD.fullmatch(row["Content"].strip())
        yield line, None if is_by_discord else re.sub(r"#\d{1,4}$", "", row["Author"]), row["Content"]


def of_sms(text: Text) -> Messages:
    """The messages of all conversations in a backup of an Android phone. Type 2 are those that its owner has sent."""
    for line, sms, _ in xml_rows.rows_in(text):
        name = sms.get("contact_name", "(Unknown)")
        author = "Me" if sms.get("type") == "2" else name if name != "(Unknown)" else sms.get("address")
        yield line, author if "body" in sms else None, sms.get("body", "")


def of_mbox(text: Text) -> Messages:
    """The plain text of each mail, without what it quotes and its signature. Bytes outside ASCII are surrogate escapes."""
    import email.policy  # only a mailbox needs it
    import html

    for begins, _, lines in blocks_in(text, MAIL, after_blank=True):
        try:
            message = email.message_from_string("\n".join(lines), email.message.EmailMessage, policy=email.policy.default)
            sender, body = message["from"].addresses[0], message.get_body(("plain", "html"))
            said = "" if body is None else body.get_content().replace("\r\n", "\n")
            if body is not None and body.get_content_subtype() == "html":
                said = html.unescape(TAGS.sub(" ", said))
        except Exception:  # of a damaged header or an unknown encoding: the email package has no error of its own
            text.noted.setdefault(UNREADABLE, []).append(begins)
            continue
        said = QUOTED.sub("", re.sub(r"(?m)^>(?=From )", "", said))
        yield begins, sender.display_name or sender.username, re.split(r"(?m)^-- ?$", said)[0]

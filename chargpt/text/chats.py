"""Exported chats and mailboxes, as messages: who wrote each, and its text on one line.

Pictures, deleted messages and lines by the program itself ("Tom joined the group") are left out and counted. A new kind of chat
is a row of CHATS: how it begins, and its reader.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from chargpt.config import DataConfig
from chargpt.errors import Message, Option, UserError, Words
from chargpt.text.json_files import join_texts, records_of
from chargpt.text.kind import Head, Kind, Reads, Record, Structure, Text, blocks_in
from chargpt.text.source import Source
from chargpt.text.tables import CSV, rows_in

AUTHOR, TEXT, MESSAGE = "author", "text", "message"  # the fields of a chat; a message is `Name: text`
Messages = Iterator[tuple[int, str, str]]  # the line where each begins, its author, its text
CHAT_HEAD = 2**13  # characters at the beginning in which a chat is recognised
# Before a message, WhatsApp writes its date and time as the language of the phone has them; an iPhone puts both in brackets.
# Invisible marks of direction may be before them.
_DATE = r"\d{1,4}[^\d\n\[\]]{1,5}\d{1,2}[^\d\n]{1,5}\d{1,4}"
_TIME = r"\d{1,2}[:.]\d\d"
_HALF = r"[^\d\n:\[\],-]{0,10}?"  # of the day: PM, p. m., nachm.
_WHEN = rf"(?:{_DATE}[^\d\n]{{1,14}}{_TIME}{_HALF}|{_TIME}{_HALF}[^\d\n]{{1,3}}{_DATE})"
_ON_IPHONE = rf"\[{_DATE}[^\d\n]{{1,14}}{_TIME}(?:[:.]\d\d)?{_HALF}\] "
_IN_KOREAN = rf"(?=\d{{4}}(?:년|\.) ){_WHEN}, "
_EARLIER = rf"{_DATE}[^\d\n]{{1,14}}{_TIME}(?::\d\d)?{_HALF}: "
WHATSAPP_STAMP = re.compile(rf"(?m)^\ufeff?[\u200e-\u2069]*(?:{_ON_IPHONE}|{_WHEN} [-–] |{_IN_KOREAN}|{_EARLIER})")
WHATSAPP_NAME = re.compile(r"([^:\n]{1,60}):(?!//)")  # after it
# A diary and a log have dates and names, too. Beside them, a chat has a first line that nobody wrote, or what WhatsApp writes
# for pictures, or its mark of direction; or people talk: several times a day, at any time, in short lines without a full stop.
NOTICE, OF_A_PROGRAM = re.compile(r"[^:\d/\[\]=_]{30,}"), re.compile(r"null|<[a-z_]+>")  # a first line; no picture
NOT_A_PERSON = re.compile(r"[a-z]*\d|[_/\\\[\]<>=@]|[a-z]+$")  # how the name of a machine or of a program begins
DAILY, SHORT, OTHERS = 2, 60, 0.5  # messages a day, characters, and share of the messages
LOG_LEVEL = re.compile(r"(?i)\b(debug|info|notice|warn(ing)?|error|fatal|critical|trace)\b")  # in place of a name: a log
_FIELDS = r'(?:"(?:\\.|[^"\\])*"|[^{}"]){0,500}?'  # of an object of JSON; a text may have braces
TELEGRAM_BEGINS = rf'\{{\s*{_FIELDS}"type":\s*"(\w+_(chat|group|supergroup|channel)|saved_messages)"{_FIELDS}"messages":\s*\['
ACCOUNT_BEGINS = r'\{\s*"about":\s*"Here is the data you requested'
META_BEGINS = rf'\{{\s*"participants":\s*\[[^\]]*\],{_FIELDS}"messages":\s*\[\s*\{{'
DISCORD_BEGINS = r'"?AuthorID"?,"?Author"?,"?Date"?,"?Content"?,'
MBOX_BEGINS = r"From \S+ [^\n]*\d\d:\d\d:\d\d[^\n]*\d{4}[^\n]*\r?\n>?[A-Za-z][\w-]*: "
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
BY_META = re.compile(r"(Liked a message|Reacted .{1,12} to your message|.{1,60} sent (an? .{1,20}|\d+ photos)\.)\s*")
MAIL = re.compile(r"From \S+ .*\d\d:\d\d:\d\d.*\d{4}")  # the line before a mail; its text has such a line with > before it
QUOTED = re.compile(  # the lines of an earlier mail, with the one that says whose they are
    r"^(?:(?:On|Am|Le|El|Il|Op|Em|Den) (?:(?!\n\n).){1,250}?:\s*\n(?=>)|[^\n]*:\n+(?=>))?(?:^>[^\n]*\n?)+",
    re.MULTILINE | re.DOTALL,
)
TAGS = re.compile(r"(?si)<(script|style).*?</\1>|<[^>]*>")


def _messages(read: Callable[[Text], Messages], text: Text) -> Iterator[Record]:
    """The messages as records with the fields author, text, and message, which is both on a line; the text alone if the author
    is a label."""
    for line, author, said in read(text):
        author, said = " ".join(author.replace(":", " ").split()), " ".join(said.split())
        if said:
            message = said if AUTHOR in text.labels else spoken(author, said)
            yield Record(line, {AUTHOR: author, TEXT: said, MESSAGE: message})
        else:
            text.left_out.setdefault(MEDIA, []).append(line)


def spoken(author: str, said: str) -> str:
    """A message on a line, as a model of a chat learns it; empty if nothing was said."""
    author, said = " ".join(author.replace(":", " ").split()), " ".join(said.split())
    return f"{author}: {said}" if said and author else said


def _whatsapp(text: Text) -> Messages:
    """A message may have several lines; only the first has a date. A line with a date and no name is by the program."""
    for begins, stamp, lines in blocks_in(text, WHATSAPP_STAMP):
        author, colon, first = stamp.string[stamp.end() :].partition(":")
        author, said = author.lstrip("~\u202f\u200e ").rstrip(), [first.removeprefix(" "), *lines]
        if not colon or len(author) > 60 or '"' in author or "“" in author:
            text.left_out.setdefault(SERVICE, []).append(begins)
        else:
            kept = [EDITED.sub("", one) for one in said if not (OMITTED.fullmatch(one) or DELETED.fullmatch(one.strip(" ‎")))]
            yield begins, author, "\n".join(kept)


def _telegram(path: str, text: Text) -> Messages:
    """The messages on a path. A text with links or bold words is a list of pieces."""
    for line, message, _ in records_of(replace(text, wanted=(f"{path}.type",))):
        said = message.get("text") if isinstance(message, dict) else None
        said = join_texts(said) if isinstance(said, list) else said
        if not isinstance(message, dict) or not isinstance(said, str):
            what = "a message whose field 'text' is missing, or not a text"
            raise UserError(f"{text.label}: line {line:,}: {what}; correct it, or export the chat again, as JSON")
        if message.get("type") == "message":
            yield line, str(message.get("from") or "Deleted Account"), said
        else:
            text.left_out.setdefault(SERVICE, []).append(line)


def _meta(text: Text) -> Messages:
    """The messages of Messenger or Instagram, the oldest first, which is the last one in the file."""
    found = [(line, message) for line, message, _ in records_of(replace(text, wanted=("messages.type",)))]
    for line, message in sorted(reversed(found), key=lambda one: one[1].get("timestamp_ms") or one[1].get("timestamp") or 0):
        author, said = message.get("sender_name") or message.get("senderName"), message.get("content") or message.get("text")
        if "call_duration" in message or BY_META.fullmatch(str(said)):
            text.left_out.setdefault(SERVICE, []).append(line)
        else:
            yield line, str(author or "Deleted Account"), str(said or "")


def _discord(text: Text) -> Messages:
    """The columns Author and Content of DiscordChatExporter's CSV."""
    table = replace(text, structure=Structure(kind=CSV, delimiter=","), wanted=("Author", "Content"))
    for line, row, _ in rows_in(table):
        if BY_DISCORD.fullmatch(row["Content"].strip()):
            text.left_out.setdefault(SERVICE, []).append(line)
        else:
            yield line, re.sub(r"#\d{1,4}$", "", row["Author"]), row["Content"]


def _mbox(text: Text) -> Messages:
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
            text.left_out.setdefault(UNREADABLE, []).append(begins)
            continue
        said = QUOTED.sub("", re.sub(r"(?m)^>(?=From )", "", said))
        yield begins, sender.display_name or sender.username, re.split(r"(?m)^-- ?$", said)[0]


def _find_whatsapp(kind: Kind, head: Head) -> Structure | None:
    """A chat, or what may be one: lines with dates and names."""
    start = head.start[:CHAT_HEAD]
    stamps = [*WHATSAPP_STAMP.finditer(start)]
    lines = [start[stamp.end() :].partition("\n")[0] for stamp in stamps]
    names = [name[1] for name in map(WHATSAPP_NAME.match, lines) if name]
    if not (WHATSAPP_STAMP.match(start) and names) or any(map(LOG_LEVEL.search, names)):
        return None
    is_noticed = NOTICE.fullmatch(lines[0]) or "\u200e" in start
    is_marked = is_noticed or any(OMITTED.fullmatch(said) and not OF_A_PROGRAM.fullmatch(said) for said in map(said_in, lines))
    people = not any(map(NOT_A_PERSON.match, names))
    is_sure = bool(is_marked or (people and (not WHATSAPP_NAME.match(lines[0]) or _is_talk(stamps, lines))))
    return Structure(kind=kind, fields=kind.fields, best=TEXT, is_sure=is_sure)


def _is_talk(stamps: list[re.Match[str]], lines: list[str]) -> bool:
    """Whether people talk in these `lines`, and nobody keeps a diary: several lines a day, short and at any time."""
    said, times = [*map(said_in, lines)], [re.findall(_TIME, stamp[0])[-1] for stamp in stamps]
    days = {stamp[0].partition(time)[0] for stamp, time in zip(stamps, times)}
    is_short = sorted(map(len, said))[len(said) // 2] <= SHORT and sum(one.endswith(".") for one in said) < OTHERS * len(said)
    return is_short and len(lines) >= DAILY * len(days) and len({*times}) >= OTHERS * len(lines)


def said_in(line: str) -> str:
    """What somebody says in a line after a date."""
    return line.partition(":")[2].strip()


def _advice(source: Source, structure: Structure, config: DataConfig) -> Words:
    return Message(", with its dates; for lines of the form `Name: message`, add ", Option("data.field", MESSAGE))


def _row(name: str, begins: str, read: Callable[[Text], Messages], **more: Any) -> Kind:
    note = "each a line `Name: message`; data.format=text reads the file as it is"
    fields: dict[str, Any] = {"fields": (AUTHOR, MESSAGE, TEXT), "field": MESSAGE, "one": "message", "note": note}
    return Kind(name=name, begins=begins, records=partial(_messages, read), reads=Reads.ALWAYS, **fields, **more)


CHATS = (
    _row("WhatsApp chat", "", _whatsapp, find=_find_whatsapp, advice=_advice),
    _row("Telegram chat", TELEGRAM_BEGINS, partial(_telegram, "messages")),
    _row("Telegram chat", ACCOUNT_BEGINS, partial(_telegram, "chats.list.messages")),
    _row("Messenger or Instagram chat", META_BEGINS, _meta),
    _row("Discord chat", DISCORD_BEGINS, _discord),
    _row("mailbox", MBOX_BEGINS, _mbox, bytes_as="surrogateescape"),  # each mail names its own encoding
)

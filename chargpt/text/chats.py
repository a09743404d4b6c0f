"""Exported chats and mailboxes: how they are recognised. A new kind is a row of CHATS and its reader in `messages.py`."""

import re
from typing import Any

from chargpt.config import DataConfig
from chargpt.errors import Message, Option, Words
from chargpt.text.kind import Head, Kind, Reads, Structure, reader
from chargpt.text.source import Source

AUTHOR, TEXT, MESSAGE = "author", "text", "message"  # the fields of a chat; a message is `Name: text`
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
# WhatsApp: what stands for a picture, in any language; a mark of direction is before what the program itself wrote.
OMITTED = re.compile(r"\u200e.*|<[^<>]{3,50}>|\S.*\.\w{2,4} \([^()]{4,40}\)|null")


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


def _row(name: str, begins: str, chat: str, **more: Any) -> Kind:
    note = "each a line `Name: message`; data.format=text reads the file as it is"
    fields: dict[str, Any] = {"fields": (AUTHOR, MESSAGE, TEXT), "field": MESSAGE, "one": "message", "note": note}
    records = reader("messages", "messages_in", chat)
    return Kind(name=name, begins=begins, records=records, reads=Reads.ALWAYS, **fields, **more)


CHATS = (
    _row("WhatsApp chat", "", "whatsapp", find=_find_whatsapp, advice=_advice),
    _row("Telegram chat", TELEGRAM_BEGINS, "telegram"),
    _row("Telegram chat", ACCOUNT_BEGINS, "telegram account"),
    _row("Messenger or Instagram chat", META_BEGINS, "meta"),
    _row("Discord chat", DISCORD_BEGINS, "discord"),
    _row("mailbox", MBOX_BEGINS, "mbox", bytes_as="surrogateescape"),  # each mail names its own encoding
)

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
_DATE = r"(\d{1,4}[^\d\n\[\]]{1,5}\d{1,2}[^\d\n]{1,5}\d{1,4})"
_TIME = r"(\d{1,2}[:.]\d\d)"
_HALF = r"[^\d\n:\[\],-]{0,10}?"  # of the day: PM, p. m., nachm.
_WHEN = rf"(?:{_DATE}[^\d\n]{{1,14}}{_TIME}{_HALF}|{_TIME}{_HALF}[^\d\n]{{1,3}}{_DATE})"
_ON_IPHONE = rf"\[{_DATE}[^\d\n]{{1,14}}{_TIME}(?:[:.]\d\d)?{_HALF}\] "
_IN_KOREAN = rf"(?=\d{{4}}(?:년|\.) ){_WHEN}, "
_EARLIER = rf"{_DATE}[^\d\n]{{1,14}}{_TIME}(?::\d\d)?{_HALF}: "
WHATSAPP_STAMP = re.compile(rf"(?m)^\ufeff?[\u200e-\u2069]*(?:{_ON_IPHONE}|{_WHEN} [-–] |{_IN_KOREAN}|{_EARLIER})")
WHATSAPP_NAME = re.compile(r"([^:\n]{1,60}):(?!//)")  # after it
# A diary and a log have dates and names, too. For a chat speak what WhatsApp writes for pictures, its mark of direction, and
# its first line, that all is encrypted; or that people answer each other within minutes. Against it speaks what machines write.
NOTICE = re.compile(
    r"(?i)[^:\d/\[\]=_]*(encr[iy]p|verschlüssel|chiffr|cifra|cript|kr[iy]pt|szyfr|шифр|şifre|salau|salat|titkos|κρυπτο|mã hóa|"
    r"加密|暗号|암호|تشفير|مشفر|מוצפ|एन्क्रिप्ट|เข้ารหัส)[^:\d/\[\]=_]*"
)
OF_A_PROGRAM = re.compile(r"null|<[a-z_]+>")  # no picture
NOT_A_PERSON = re.compile(r"[a-z]*\d|[_/\\\[\]<>=@]|[a-z]+$")  # how the name of a machine or of a program begins
NOT_SAID = re.compile(r"\d|[=_/\\]")  # in what a machine writes, or a diary of measurements
# Minutes to an answer, and the share of all messages that are sent so soon after another one, of these the share by somebody
# else, and of all that have a name, or what a machine may write.
ANSWER, SOON, ANSWERS, NAMED, MOST_NOT_SAID = 15, 0.5, 0.2, 0.7, 0.5
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
    names = [name[1] if (name := WHATSAPP_NAME.match(line)) else "" for line in lines]
    if not (WHATSAPP_STAMP.match(start) and any(names)) or any(map(LOG_LEVEL.search, names)):
        return None
    said = [said_in(line) for line, name in zip(lines, names) if name]
    is_marked = "\u200e" in start or any(OMITTED.fullmatch(one) and not OF_A_PROGRAM.fullmatch(one) for one in said)
    is_marked |= bool(NOTICE.fullmatch(lines[0]))
    is_talk = not any(map(NOT_A_PERSON.match, names)) and _is_talk(stamps, names)
    is_said = sum(map(bool, map(NOT_SAID.search, said))) <= MOST_NOT_SAID * len(said)
    return Structure(kind=kind, fields=kind.fields, best=TEXT, is_sure=bool(is_marked or (is_talk and is_said)))


def _is_talk(stamps: list[re.Match[str]], names: list[str]) -> bool:
    """Whether people answer each other within minutes, as nobody does who keeps a diary. An empty name is nobody's."""
    whens = [sorted(filter(None, stamp.groups()), key=len) for stamp in stamps]  # a time, and a date, which is longer
    days = [day for _, day in whens]
    minutes = [60 * int(hour) + int(minute) for hour, minute in (re.split("[:.]", time) for time, _ in whens)]
    soon = [i for i in range(1, len(names)) if days[i] == days[i - 1] and (minutes[i] - minutes[i - 1]) % 720 <= ANSWER]
    answers = sum(names[i] != names[i - 1] for i in soon if names[i] and names[i - 1])
    return len(soon) >= SOON * len(names) and answers >= ANSWERS * len(soon) and sum(map(bool, names)) >= NAMED * len(names)


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

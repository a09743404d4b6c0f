"""Exported chats and mailboxes: how they are recognised. A new kind is a row of CHATS and its reader in `messages.py`."""

import math
import re
from functools import partial
from typing import Any, NamedTuple

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
_WHATSAPP = rf"\ufeff?[\u200e-\u2069]*(?:{_ON_IPHONE}|{_WHEN} [-–] |{_IN_KOREAN}|{_EARLIER})"
_CLOCK = rf"{_TIME}(?:[:.]\d\d)?(?: ?[AP]M)?"  # of the day
_LOGGED = rf"(?:\[?(?:{_DATE}|\w{{3}} \d\d?)[ T]{{1,2}}|\[)?{_CLOCK}\]?"  # in a log, with or without the day
# A diary and a log have dates and names, too. For a chat speak what WhatsApp writes for pictures, its mark of direction, and
# its first line, that all is encrypted; or that people answer each other within minutes. Against it speaks what machines write.
NOTICE = re.compile(
    r"(?i)[^:\d/\[\]=_]*(encr[iy]p|verschlüssel|chiffr|cifra|cript|kr[iy]pt|szyfr|шифр|şifre|salau|salat|titkos|κρυπτο|mã hóa|"
    r"加密|暗号|암호|تشفير|مشفر|מוצפ|एन्क्रिप्ट|เข้ารหัส)[^:\d/\[\]=_]*"
)
# What such a chat program writes between messages; how a name is marked there.
BETWEEN = re.compile(
    r"[-=*]{3,}.*|\W*(?:\w+\W{1,2})??\d{1,4}(?:\W{1,2}|년 )\d\d?(?:\W{1,2}|월 )\d{1,4}\b.{0,12}|Session \w+: .*"
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


class Form(NamedTuple):
    """How a program writes the messages of a chat as lines."""

    stamp: re.Pattern[str]  # before a message, with its time
    name: re.Pattern[str]  # of its author, behind it
    mark: re.Pattern[str]  # somewhere at the beginning of a chat, which nobody else writes

    def author_of(self, line: str) -> tuple[str, str]:
        """Who wrote a line behind a stamp, and what; an empty name if it is by the program."""
        name = self.name.match(line)
        return (name[1], line[name.end() :]) if name else ("", line)


def _form(stamp: str, name: str, mark: str) -> Form:
    return Form(re.compile(f"(?m)^(?:{stamp})"), re.compile(name), re.compile(mark))


FORMS = {
    "whatsapp": _form(_WHATSAPP, r"([^:\n]{1,60}):(?!//)", "\u200e"),
    "irc": _form(rf"{_LOGGED}\s(?=<|\*|-)", r"<[@+%&~! ]?([^<>\n]{1,40})>\s", r"<[^<>\n]+>"),
    "columns": _form(rf"(?:{_DATE}[ T])?{_CLOCK}\t", r"(?![-*<=])([^\t\n]{1,40})\t", r"\A\[LINE\]|\t(?:-->|<--|--)\t"),
    "kakaotalk": _form(rf"(?=\[[^\]\n]+\] \[\D{{0,4}}{_CLOCK}\] )", r"\[([^\]\n]{1,40})\] \[[^\]\n]*\] ", "카카오톡|KakaoTalk"),
    "clock": _form(rf"[\[(]{_CLOCK}[\])] (?!<)", r"([^:\n]{1,40}): ", r"\AConversation with "),
    "zoom": _form(rf"{_CLOCK}\s+From\s+(?=\S.*:)", r"(.{1,40}?)(?: [Tt]o .*?)? ?:(?: |$)", "[Ff]rom "),
}
HEADER, FEWEST = 6, 0.4  # lines before the first message; the share of lines that are messages, where there are such


def _find_lines(form: Form, kind: Kind, head: Head) -> Structure | None:
    """A chat, or what may be one: lines with times and names."""
    start = head.start[:CHAT_HEAD]
    stamps = [*form.stamp.finditer(start)]
    pairs = [form.author_of(start[stamp.end() :].partition("\n")[0]) for stamp in stamps]
    before = start.count("\n", 0, stamps[0].start()) if any(name for name, _ in pairs) else math.inf
    if before > HEADER or (before and len(stamps) < FEWEST * start.count("\n")):
        return None
    if any(LOG_LEVEL.search(name) for name, _ in pairs):
        return None
    is_talk = head.suffix != ".log" and _is_talk(stamps, pairs)
    is_sure = form.mark.search(start) is not None or _is_marked(pairs) or is_talk
    return Structure(kind=kind, fields=kind.fields, best=TEXT, is_sure=is_sure)


def _is_marked(pairs: list[tuple[str, str]]) -> bool:
    """Whether a chat program has left its marks in what was said, and by whom."""
    said = [text.strip() for name, text in pairs if name]
    are_omitted = any(OMITTED.fullmatch(one) and not OF_A_PROGRAM.fullmatch(one) for one in said)
    return are_omitted or NOTICE.fullmatch(pairs[0][1]) is not None


def _is_talk(stamps: list[re.Match[str]], pairs: list[tuple[str, str]]) -> bool:
    """Whether people answer each other within minutes, as nobody does who keeps a diary. An empty name is nobody's."""
    names, said = [name for name, _ in pairs], [text for name, text in pairs if name]
    if any(map(NOT_A_PERSON.match, names)) or sum(map(bool, map(NOT_SAID.search, said))) > MOST_NOT_SAID * len(said):
        return False
    whens = [sorted(filter(None, stamp.groups()), key=len) for stamp in stamps]  # a time, and a date, which is longer
    days = [day for _, *day in whens]
    minutes = [60 * int(hour) + int(minute) for hour, minute in (re.split("[:.]", time) for time, *_ in whens)]
    soon = [i for i in range(1, len(names)) if days[i] == days[i - 1] and (minutes[i] - minutes[i - 1]) % 720 <= ANSWER]
    answers = sum(names[i] != names[i - 1] for i in soon if names[i] and names[i - 1])
    return len(soon) >= SOON * len(names) and answers >= ANSWERS * len(soon) and sum(map(bool, names)) >= NAMED * len(names)


def _advice(source: Source, structure: Structure, config: DataConfig) -> Words:
    return Message(", with its dates; for lines of the form `Name: message`, add ", Option("data.field", MESSAGE))


def _row(name: str, begins: str, chat: str, **more: Any) -> Kind:
    note = "each a line `Name: message`; data.format=text reads the file as it is"
    fields: dict[str, Any] = {"fields": (AUTHOR, MESSAGE, TEXT), "field": MESSAGE, "one": "message", "note": note}
    if chat in FORMS:
        more |= {"find": partial(_find_lines, FORMS[chat]), "advice": _advice}
    records = reader("messages", "messages_in", chat)
    return Kind(name=name, begins=begins, records=records, reads=Reads.ALWAYS, **fields, **more)


CHATS = (
    _row("WhatsApp chat", "", "whatsapp"),
    _row("IRC log", "", "irc"),
    _row("chat in columns", "", "columns"),
    _row("KakaoTalk chat", "", "kakaotalk"),
    _row("chat with times", "", "clock"),
    _row("Zoom chat", "", "zoom"),
    _row("Telegram chat", TELEGRAM_BEGINS, "telegram"),
    _row("Telegram chat", ACCOUNT_BEGINS, "telegram account"),
    _row("Messenger or Instagram chat", META_BEGINS, "meta"),
    _row("Discord chat", DISCORD_BEGINS, "discord"),
    _row("mailbox", MBOX_BEGINS, "mbox", bytes_as="surrogateescape"),  # each mail names its own encoding
)

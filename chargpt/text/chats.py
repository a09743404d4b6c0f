"""Exported chats and mailboxes: how they are recognised. A new kind is a row of CHATS and its reader in `messages.py`."""

import math
import re
from functools import partial
from typing import Any, NamedTuple

from chargpt.errors import Message, Option
from chargpt.text.kind import Head, Kind, Reads, Structure, reader

AUTHOR, TEXT, MESSAGE = "author", "text", "message"  # the fields of a chat; a message is `Name: text`
CHAT_HEAD = 2**13  # characters at the beginning in which a chat is recognised
# Before a message, WhatsApp writes date and time as the phone's language has them; an iPhone in brackets, after unseen marks.
_DATE = r"(\d{1,4}[^\d\n\[\]]{1,5}\d{1,2}[^\d\n]{1,5}\d{1,4})"
_TIME = r"(\d{1,2}[:.]\d\d)"
_HALF = r"[^\d\n:\[\],-]{0,10}?"  # of the day: PM, p. m., nachm.
_WHEN = rf"(?:{_DATE}[^\d\n]{{1,14}}{_TIME}(?:[:.]\d\d(?:,\d+)?)?{_HALF}|{_TIME}{_HALF}[^\d\n]{{1,3}}{_DATE})"
_ON_IPHONE = rf"\[{_DATE}[^\d\n]{{1,14}}{_TIME}(?:[:.]\d\d)?{_HALF}\] "
_IN_KOREAN = rf"(?=\d{{4}}(?:년|\.) ){_WHEN}, "
_EARLIER = rf"{_DATE}[^\d\n]{{1,14}}{_TIME}(?::\d\d)?{_HALF}: "
_WHATSAPP = rf"\ufeff?[\u200e-\u2069]*(?:{_ON_IPHONE}|{_WHEN} [-–] |{_IN_KOREAN}|{_EARLIER})"
_CLOCK = rf"{_TIME}(?:[:.]\d\d)?(?: ?[AP]M)?"  # of the day
_LOGGED = rf"(?:\[?(?:{_DATE}|\w{{3}} \d\d?)[ T]{{1,2}}|\[)?{_CLOCK}\]?"  # in a log, with or without the day
_QQ = rf"{_DATE} {_TIME}:\d\d[ \t]+(?=\S)"
LOG_LEVEL = re.compile(r"(?i)\b(debug|info|notice|warn(ing)?|error|fatal|critical|trace)\b")  # in place of a name: a log
_FIELDS = r'(?:"(?:\\.|[^"\\])*"|[^{}"]){0,500}?'  # of an object of JSON; a text may have braces
TELEGRAM_BEGINS = rf'\{{\s*{_FIELDS}"type":\s*"(\w+_(chat|group|supergroup|channel)|saved_messages)"{_FIELDS}"messages":\s*\['
META_BEGINS = rf'\{{\s*"participants":\s*\[[^\]]*\],{_FIELDS}"messages":\s*\[\s*\{{'
MBOX_BEGINS = r"From \S+ [^\n]*\d\d:\d\d:\d\d[^\n]*\d{4}[^\n]*\r?\n>?[A-Za-z][\w-]*: "
AS_LINES = Message(", with its dates; for lines of the form `Name: message`, add ", Option("data.field", MESSAGE))
HEADER, FEWEST = 8, 0.3  # lines before the first message; the share of those behind that are messages, where there are such


class Form(NamedTuple):
    """How a program writes the messages of a chat as lines."""

    stamp: re.Pattern[str]  # before a message, with its time
    name: re.Pattern[str]  # of its author, behind it
    mark: re.Pattern[str]  # somewhere at the beginning of a chat, which nobody else writes

    def author_of(self, text: str) -> tuple[str, str]:
        """Who wrote what is behind a stamp, and what; an empty name if it is by the program."""
        name = self.name.match(text)
        return (name[1], text[name.end() :]) if name else ("", text)


def _find_lines(form: Form, kind: Kind, head: Head) -> Structure | None:
    """A chat, or what may be one: lines with times and names."""
    start = head.start[:CHAT_HEAD]
    stamps = [*form.stamp.finditer(start)]
    pairs = [(name, said.partition("\n")[0]) for name, said in (form.author_of(start[one.end() :]) for one in stamps)]
    before = start.count("\n", 0, stamps[0].start()) if any(name for name, _ in pairs) else math.inf
    is_other = before > HEADER or (before and len(stamps) < FEWEST * len(re.findall(r"\n.", start[stamps[0].end() :])))
    if is_other or any(LOG_LEVEL.search(name) for name, _ in pairs):
        return None
    from chargpt.text.talks import is_marked, is_talk  # most texts have no such lines

    is_sure = bool(form.mark.search(start)) or is_marked(pairs) or (head.suffix != ".log" and is_talk(stamps, pairs))
    return Structure(kind=kind, fields=kind.fields, best=TEXT, is_sure=is_sure)


def _row(name: str, read: str, *given: object, **more: Any) -> Kind:
    note = "each a line `Name: message`; data.format=text reads the file as it is"
    fields: dict[str, Any] = {"fields": (AUTHOR, MESSAGE, TEXT), "field": MESSAGE, "one": "message", "note": note}
    records = reader("messages", "messages_in", reader("messages", read, *given))
    return Kind(name=name, records=records, reads=Reads.ALWAYS, **fields, **more)


def _form(name: str, stamp: str, author: str, mark: str) -> Kind:
    form = Form(re.compile(f"(?m)^(?:{stamp})"), re.compile(f"(?m){author}"), re.compile(mark))
    return _row(name, "of_lines", form, find=partial(_find_lines, form), advice=lambda *_: AS_LINES)


CHATS = (
    _form("chat with dates", _WHATSAPP, r"([^:\n]{1,60}):(?!//)", "\u200e"),
    _form("IRC log", rf"{_LOGGED}\s(?=<|\*|-)", r"<[@+%&~! ]?([^<>\n]{1,40})>\s", r"<[^<>\n]+>"),
    _form(
        "chat in columns",
        rf"(?:{_DATE}[ T])?{_CLOCK}\t",
        r"(?![-*<=])[@+%&~]?([^\t\n]{1,40})\t",
        r"\A\[LINE\]|\t(?:-->|<--|--)\t",
    ),
    _form(
        "KakaoTalk chat", rf"(?=\[[^]\n]+\] \[\D{{0,4}}{_CLOCK}\] )", r"\[([^]\n]{1,40})\] \[[^]\n]*\] ", "카카오톡|KakaoTalk"
    ),
    _form("chat with times", rf"[\[(]{_CLOCK}[\])] (?!<)", r"([^:\n]{1,40}): ", r"\AConversation with "),
    _form(
        *("Discord chat", rf"\[(?:{_DATE}|(\d\d-\w{{3}}-\d\d)) {_TIME}(?: [AP]M)?\] "),
        *(r"(.{1,40}?)(?:#\d{4})?(?: \(pinned\))?\n", r"\A=+\n"),
    ),
    _form("iMessage chat", rf"(\w{{3}} \d\d, \d{{4}})  ?{_TIME}:\d\d [AP]M(?: \(.*\))?$", r"\n(.{1,60})\n", r"M\nMe\n"),
    _form(
        *("QQ or WeChat chat", _QQ),
        *(rf"(\S.{{0,39}}?)(?:\([^()\n]+\)|<[^<>\n]+>)?[ \t]*\n(?!\s*(?:{_QQ}|\Z))", "\n消息(记录|对象)"),
    ),
    _form("Zoom chat", rf"{_CLOCK}\s+From\s+(?=\S.*:)", r"(.{1,40}?)(?: [Tt]o .*?)? ?:(?: |$)", "[Ff]rom "),
    _row("Telegram chat", "of_telegram", "messages", begins=TELEGRAM_BEGINS),
    _row("Telegram chat", "of_telegram", "chats.list.messages", begins=r'\{\s*"about":\s*"Here is the data you requested'),
    _row("Messenger or Instagram chat", "of_meta", begins=META_BEGINS),
    _row("Discord chat", "of_discord", begins=r'"?AuthorID"?,"?Author"?,"?Date"?,"?Content"?,'),
    _row("SMS backup", "of_sms", begins=r"(?:<[?!][^>]*>\s*)*<smses\b"),
    _row("mailbox", "of_mbox", begins=MBOX_BEGINS, bytes_as="surrogateescape"),  # each mail names its own encoding
)

"""Exported chats and mailboxes are read as one conversation; what nobody said is left out, and counted."""

import csv
import email.headerregistry
import email.message
import html
import io
import itertools
import json
import mailbox
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_helpers import text_of, write

from chargpt.errors import UserError
from chargpt.text.json_records import put_together

SAID = "Ben: hi there, Oma\nOma: hello, my dear: how are you?\nBen: fine and you\nOma: bye\n"
# How WhatsApp writes the time before a message: on Android and on an iPhone, in several languages.
STAMPS = {
    "English, USA": "1/{}/24, 9:15\u202fPM - ",
    "German": "0{}.01.24, 21:15 - ",
    "Spanish": "{}/1/24, 9:15 p.\u00a0m. - ",
    "French": "0{}/01/2024 à 21:15 - ",
    "Swedish": "2024-01-0{} 21:15 - ",
    "Finnish": "{}.1.2024 klo 21.15 - ",
    "Hungarian": "2024. 01. 0{}. 21:15 - ",
    "Chinese": "2024/1/{} 下午9:15 - ",
    "Korean": "2024년 1월 {}일 오후 9:15, ",
    "Vietnamese": "21:15, 0{}/01/2024 - ",
    "Arabic": "\u200f{}\u200f/\u200f١\u200f/\u200f٢٠٢٤، ٩:١٥ م - ",
    "iPhone, USA": "[1/{}/24, 9:15:33\u202fPM] ",
    "iPhone, Chinese": "[2024/1/{} 下午9:15:33] ",
    "iPhone, marked": "\u200e[1/{}/24, 9:15:33 p.m.] ",
}
WHATSAPP = [
    "Messages and calls are end-to-end encrypted. Tap to learn more.",
    "Ben: hi there,\nOma",
    "Oma: <Media omitted>",
    "Oma: hello, my dear: how are you?",
    "Ben: \u200eimage omitted",
    "Ben: IMG-20240101-WA0001.jpg (file attached)\nfine\nand you",
    "Ben: This message was deleted",
    'Oma changed the subject from "a: b" to "c"',
    "~ Oma: bye <This message was edited>",
]
TELEGRAM = [
    {"type": "service", "actor": "Ben", "action": "create_group", "text": ""},
    {"type": "message", "from": "Ben", "text": ["hi ", {"type": "bold", "text": "there"}, ", Oma"]},
    {"type": "message", "from": "Oma", "photo": "a.jpg", "text": ""},
    {"type": "message", "from": "Oma", "reply_to_message_id": 2, "text": "hello, my dear: how are you?"},
    {"type": "message", "from": "Ben", "text": "fine\nand you"},
    {"type": "message", "from": "Oma", "text": [{"type": "link", "text": "bye"}]},
]
CHAT = {"name": 'Fam[i{l}y "x"', "type": "private_group", "id": 1, "messages": TELEGRAM}
ACCOUNT = {"about": "Here is the data you requested.", "chats": {"about": "x", "list": [CHAT]}}
DISCORD = """AuthorID,Author,Date,Content,Attachments,Reactions
1,Ben#0,2024-01-01,Joined the server.,,
1,Ben#0,2024-01-01,"hi there,\nOma",,
2,Oma#1234,2024-01-01,,https://example.org/a.jpg,
2,Oma#1234,2024-01-01,"hello, my dear: how are you?",,
1,Ben#0,2024-01-02,fine and you,,
2,Oma#1234,2024-01-02,bye,,
"""
META = [  # the newest first, with the bytes of UTF-8 as characters
    {"sender_name": "Oma", "timestamp_ms": 7, "content": "bye"},
    {"sender_name": "Ben", "timestamp_ms": 6, "content": "fine\nand you"},
    {"sender_name": "Ben", "timestamp_ms": 5, "call_duration": 9, "content": "Ben called you."},
    {
        "sender_name": "Oma",
        "timestamp_ms": 4,
        "content": "hello, my dear: how are you?",
        "reactions": [{"reaction": "\xe2\x9d\xa4"}],
    },
    {"sender_name": "Oma", "timestamp_ms": 3, "photos": [{"uri": "a.jpg"}]},
    {"sender_name": "Ben", "timestamp_ms": 2, "content": "hi there, Oma"},
]
META_CHAT = {"participants": [{"name": "Oma"}, {"name": "Ben"}], "messages": META, "title": "Ben"}
META_SECRET = {
    "participants": ["Oma", "Ben"],
    "threadName": "Ben",
    "messages": [{"senderName": m["sender_name"], "timestamp": m["timestamp_ms"], "text": m.get("content", "")} for m in META],
}
MBOX = b"""From a@example.org Mon Jan  1 09:15:00 2024
From: Ben <ben@example.org>
Content-Type: text/plain; charset=latin-1

hi there,
Oma
-- 
Ben, caf\xe9
From here Mon Jan  1 09:00:00 2024

From b@example.org Mon Jan  1 09:16:00 2024
From: =?utf-8?q?Oma?= <oma@example.org>
Content-Type: multipart/alternative; boundary=X

--X
Content-Type: text/html

<p>never <b>read</b></p>
--X
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: quoted-printable

hello, my dear:=20
how are you?

On Mon, 1 Jan 2024 at 09:15, Ben <ben@example.org>
wrote:
> hi there,
> Oma
--X--

From a@example.org Mon Jan  1 09:17:00 2024
From: Ben <ben@example.org>
Content-Type: text/html

<html><style>b {}</style>fine&#32;<b>and</b> you</html>

From c@example.org Mon Jan  1 09:18:00 2024
From: Nobody <c@example.org>
Content-Type: text/plain; charset=klingon

qapla

From b@example.org Mon Jan  1 09:19:00 2024
From: Oma <oma@example.org>

bye
"""


def whatsapp(language: str) -> str:
    return "".join(STAMPS[language].format(day % 9 + 1) + message + "\n" for day, message in enumerate(WHATSAPP))


EARLIER = {  # forms that WhatsApp has written: the stamp, and what is after a name
    "without a space": ("[2024/1/{} 09:15:33] ", ":"),
    "with a colon": ("0{}/01/2024 09:15:33: ", ": "),
    "of Element": ("{}/1/2024, 9:15:33 AM - ", ": "),
    "with a colon and PM": ("{}/1/24, 9:15:33 PM: ", ": "),
}


def whatsapp_of(stamp: str, after: str) -> bytes:
    lines = [
        one.replace(": ", after, 1) if one[:3] in ("Ben", "Oma", "~ O") and "changed" not in one else one for one in WHATSAPP
    ]
    return "".join(stamp.format(day % 9 + 1) + line + "\n" for day, line in enumerate(lines)).encode()


SMS = """<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>
<!--File Created By SMS Backup & Restore-->
<smses count="5">
  <sms address="+15550001" type="1" body="hi there,&#10;Oma" contact_name="Ben" />
  <mms address="+15550002"><parts><part ct="image/jpeg" text="null" /></parts></mms>
  <sms address="Oma" type="1" body="hello, my dear: how are you?" contact_name="(Unknown)" />
  <sms address="+15550001" type="1" body='fine
and you' contact_name="Ben" /><sms address="Oma" type="1" body="bye" />
</smses>
"""


CHATS = {
    **{f"WhatsApp, {language}": ("chat.txt", whatsapp(language).encode(), 3, 2) for language in STAMPS},
    "WhatsApp, \\r\\n": ("chat.txt", whatsapp("German").replace("\n", "\r\n").encode(), 3, 2),
    "Telegram": ("result.json", json.dumps(CHAT, indent=1).encode(), 1, 1),
    "Telegram, account": ("result.json", json.dumps(ACCOUNT).encode(), 1, 1),
    "Discord": ("chat.csv", DISCORD.encode(), 1, 1),
    "Messenger": ("message_1.json", json.dumps(META_CHAT, indent=2).encode(), 1, 1),
    "Messenger, encrypted": ("Ben.json", json.dumps(META_SECRET).replace("Ben called you", "Ben sent a photo").encode(), 1, 1),
    **{f"WhatsApp, {form}": ("chat.txt", whatsapp_of(stamp, after), 3, 2) for form, (stamp, after) in EARLIER.items()},
    "SMS": ("sms.xml", SMS.encode(), 0, 1),
    "mbox": ("mail.mbox", MBOX, 0, 0),
    "mbox, \\r\\n": ("mail", MBOX.replace(b"\n", b"\r\n"), 0, 0),
}


@pytest.fixture
def chat(tmp_path):
    return lambda name: write(tmp_path / CHATS[name][0], CHATS[name][1])


@pytest.mark.parametrize("name", CHATS)
def test_a_chat_is_one_conversation_and_what_is_left_out_is_counted(name, chat, load):
    corpus = load(chat(name))
    *_, media, service = CHATS[name]
    assert text_of(corpus) + "\n" == SAID and not corpus.warnings
    notes = " | ".join(map(str, corpus.notes))
    assert "4 messages, each a line" in notes
    assert (f"messages without text, left out: {media}" in notes) == bool(media)
    assert (f"lines that nobody wrote, left out: {service}" in notes) == bool(service)
    assert ("mails that cannot be read, left out: 1, the first in line" in notes) == name.startswith("mbox")


def test_what_the_owner_of_a_phone_has_sent_is_by_me(load, tmp_path):
    path = write(tmp_path / "sms.xml", SMS.replace('type="1" body="h', 'type="2" body="h'))
    assert text_of(load(path)) == "Me: hi there, Oma\nMe: hello, my dear: how are you?\nBen: fine and you\nOma: bye"


@pytest.mark.parametrize("name", ["WhatsApp, French", "Telegram", "Discord", "mbox"])
def test_one_author_alone_the_texts_alone_and_the_file_as_it_is(name, chat, load):
    path = chat(name)
    assert text_of(load(path, where="author=Oma")) == "Oma: hello, my dear: how are you?\nOma: bye"
    assert sorted(text_of(load(path, items="line", label="author")).splitlines())[0] == "Ben\tfine and you"
    items = load(path, items="text", label="author").items
    assert items.labels == {"Ben": 2, "Oma": 2} and text_of(load(path, field="text", format="fields")).startswith("hi there")
    with pytest.raises(UserError, match=r"line \d+: no field 'autor', .*; did you mean data.where=author\?"):
        load(path, where="autor=Oma")
    with pytest.raises(UserError, match="no text in it .*author is not Opa, left out: 4"):
        load(path, where="author=Opa")
    if name in ("WhatsApp, French", "Telegram"):
        assert text_of(load(path, format="text")) == CHATS[name][1].decode()
    if name in ("WhatsApp, French", "mbox"):
        assert text_of(load(path, field="text", format="fields")).startswith("hi there, Oma\nhello")


LINES = st.lists(
    st.sampled_from(["the sea, 5 < 6 & é", "From here on", "-- ", "> not mine", "a stone: and", "far"]), max_size=5
)
WAYS = st.sampled_from(["8bit", "base64", "quoted-printable", "html", "none"])
MAILS = st.lists(st.tuples(st.sampled_from(["Ann", "Oma: Käthe", ""]), LINES, WAYS), min_size=1, max_size=5)


@given(MAILS)
def test_what_the_email_package_wrote_is_read_without_quotes_and_signatures(tmp_path, load, mails):
    (tmp_path / "mail.mbox").unlink(missing_ok=True)
    box, said = mailbox.mbox(tmp_path / "mail.mbox"), list[str]()
    for author, lines, way in mails:
        mail = email.message.EmailMessage()
        mail["From"] = email.headerregistry.Address(author, "ann", "example.org")
        if way == "html":
            content = "<br>\n".join(f"<b>{html.escape(line)}</b>" for line in lines)
            mail.set_content(f"<style>x</style>{content}", subtype="html")
        elif way != "none":
            mail.set_content("\n".join(lines), cte=way)
            mail.add_attachment(b"no text", maintype="image", subtype="png")
        frame = mailbox.mboxMessage(mail)
        frame.set_from("ann@example.org", time.gmtime(0))
        box.add(frame)
        own = lines if way == "html" else [line for line in itertools.takewhile("-- ".__ne__, lines) if line[0] != ">"]
        if way != "none" and (text := " ".join(" ".join(own).split())):
            said.append(f"{' '.join(author.replace(':', ' ').split()) or 'ann'}: {text}")
    box.close()
    if said:
        assert text_of(load(tmp_path / "mail.mbox", block_size=1)).splitlines() == said
    else:
        with pytest.raises(UserError, match="no text in it"):
            load(tmp_path / "mail.mbox")


ENTRIES = st.lists(
    st.sampled_from(["The sea was cold.", "We saw nobody all day, and slept.", "Rain", "no wind"]), min_size=12, max_size=30
)
NOTED = ["Today we walked along the shore for hours", "Rain", "Wien: The sea was cold."]  # the first entry


@given(
    st.sampled_from([*STAMPS.values(), *(stamp for stamp, _ in EARLIER.values())]),
    st.sampled_from(["Wien", "Graz", "db01", "web"]),
    ENTRIES,
    st.sampled_from(NOTED),
    st.integers(16, 400),
)
def test_a_diary_and_a_log_keep_their_dates_and_are_told_how_they_may_be_read(tmp_path, load, stamp, name, entries, first, gap):
    """Some lines a day, at irregular times, or lines of a machine every minute, none of them marked by WhatsApp."""
    stamp, lines, minutes = stamp.replace("\u200e", ""), [first], itertools.cycle([gap, 7 * gap % 311 + 16])
    lines += [f"{'Wien' if number % 2 else name}: {entry}" for number, entry in enumerate(entries)]
    gaps = itertools.accumulate(minutes if name in ("Wien", "Graz") else itertools.repeat(1))
    whens = [(time // 1440 % 9 + 1, time // 60 % 24, time % 60) for time in itertools.islice(gaps, len(lines))]
    content = "".join(at(stamp, *when) + line + "\n" for when, line in zip(whens, lines))
    corpus = load(write(tmp_path / "kept.txt", content), newlines="keep")
    assert text_of(corpus) == content.removesuffix("\n") + "\n" * text_of(corpus).endswith("\n")
    (warning,) = map(str, corpus.warnings)
    assert "perhaps a chat with dates" in warning and warning.endswith("add data.field=message")
    read = text_of(load(tmp_path / "kept.txt", field="message", format="fields"))
    assert f"{name}: {entries[0]}\n" in read


TALK = st.lists(st.sampled_from(["ok", "See you. Bye."]), min_size=6, max_size=40)


@given(st.sampled_from([*STAMPS.values(), *(stamp for stamp, _ in EARLIER.values())]), TALK, st.integers(0, 7))
def test_people_who_answer_each_other_within_minutes_talk(tmp_path, load, stamp, talk, gap):
    whens = [(1, 9 + gap * n // 60, gap * n % 60) for n in range(len(talk))]
    said = [f"{who}: {what}" for who, what in zip(itertools.cycle(["Ann", "Ann", "Ben Smith", "Oma"]), talk)]
    content = "".join(at(stamp.replace("\u200e", ""), *when) + line + "\n" for when, line in zip(whens, said))
    assert text_of(load(write(tmp_path / "chat.txt", content), block_size=1)).splitlines() == said


def at(stamp: str, day: int, hour: int, minute: int) -> str:
    """A stamp with this time in place of the quarter past nine."""
    return re.sub(r"(?:0?9|21|٩)([:.])(?:15|١٥)", rf"{hour}\g<1>{minute:02}", stamp.format(day))


BAR = "=" * 62 + "\n"
LOGS = {  # what other programs write first, before a message, and when somebody comes
    "irssi": ("--- Log opened Sun Mar 01 10:00:00 2026\n", "{:02}:{:02} <{}> {}", "{:02}:{:02} -!- {} has joined"),
    "mIRC": ("\nSession Start: Sun Mar 01 10:00:00 2026\n", "[{:02}:{:02}] <@{}> {}", "[{:02}:{:02}] * {} has joined"),
    "HexChat": ("**** BEGIN LOGGING AT Sun\n\n", "Mar 01 {:02}:{:02}:07 <{}>\t{}", "Mar 01 {:02}:{:02}:07 *\t{} has quit"),
    "ZNC": ("", "[2026-03-01 {:02}:{:02}:07] <{}> {}", "[2026-03-01 {:02}:{:02}:07] *** Joins: {}"),
    "WeeChat": ("", "2026-03-01 {:02}:{:02}:07\t{}\t{}", "2026-03-01 {:02}:{:02}:07\t-->\t{} has joined"),
    "WeeChat, who has rights": ("", "2026-03-01 {:02}:{:02}:07\t@{}\t{}", "2026-03-01 {:02}:{:02}:07\t-->\t{} has joined"),
    "LINE": ("[LINE] Chat history with Oma\nSaved on: 3/1/2026, 19:22\n\nSun, 3/1/2026\n", "{:02}:{:02}\t{}\t{}", ""),
    "KakaoTalk": (
        "Oma 님과 카카오톡 대화\n저장한 날짜 : 오후\n\n--------------- 2026년 3월 1일 ---\n",
        "[{2}] [오전 {0}:{1:02}] {3}",
        "",
    ),
    "KakaoTalk, phone": ("Oma 카카오톡 대화\n저장한 날짜 : 오후\n\n", "2026년 3월 1일 오후 {}:{:02}, {} : {}", ""),
    "Pidgin": ("Conversation with Oma at Sun 01 Mar 2026\n", "({:02}:{:02}:07) {}: {}", ""),
    "Zoom": ("", "{:02}:{:02}:07\t From  {} : {}", ""),
    "Zoom, new": ("", "{:02}:{:02}:07 From {} to Everyone:\n\t{}", ""),
    "Discord": (f"{BAR}Guild: us\nChannel: talk\nTopic: x\n{BAR}\n", "[3/1/2026 {:02}:{:02} AM] {}\n{}\n", ""),
    "Discord, older": (
        f"{BAR}Server: us\nChannel: talk\n{BAR}\n",
        "[01-Mar-26 {:02}:{:02} PM] {}#1234 (pinned)\n{}\n",
        "",
    ),
    **{
        f"iMessage, {path.count(' ')} spaces in a path": (
            "",
            f"Mar 01, 2026  {{:02}}:{{:02}}:07 AM (Read by you)\n{{}}\n{path}\n{{}}\nTapbacks:\n    Loved by Me\n",
            "",
        )
        for path in (
            "attachments/12/a.heic",
            r"C:\Out\Attachments\a b.jpeg",
            "/Users/A B/Library/Messages/Attachments/ab/IMG 1.MOV",
        )
    },
    **{
        f"QQ, {name}": (
            f"消息记录（此消息记录为文本格式）\n\n{BAR}消息分组:我的好友\n{BAR}消息对象:Oma\n{BAR}\n" * (name != "WeChat"),
            f"2026-03-01 {{:02}}:{{:02}}:13 {form}\n{{}}\n",
            "",
        )
        for name, form in (("friend", "{}"), ("group", "{}(12345)"), ("mail", "{}<a@b.com>"), ("WeChat", "{}"))
    },
    "Signal": ("", "[2026-03-01 {:02}:{:02}] {}: {}", ""),
    "Skype": ("", "[01.03.2026 {:02}:{:02}:07] {}: {}", ""),
}


PLAIN = ("Signal", "Skype", "KakaoTalk, phone", "iMessage", "QQ, WeChat")  # times and names alone: a .log of any program


@given(st.sampled_from([*LOGS]), TALK, st.integers(0, 7))
def test_a_chat_of_any_program_is_read_without_its_times(tmp_path, load, program, talk, gap):
    head, line, coming = LOGS[program]
    people = zip(itertools.cycle(["Ann", "Ann", "Ben", "Oma"]), talk)
    said = [(9 + gap * n // 60, gap * n % 60, *one) for n, one in enumerate(people)]
    content = head + "".join(line.format(*one) + "\n" + coming.format(*one[:3]) + "\n" * bool(coming) for one in said)
    content += f"{{Embed}}\nx\n\n{BAR}Exported {len(said)} message(s)\n{BAR}" * program.startswith("Discord")
    is_plain = program.startswith(PLAIN)
    path = write(tmp_path / f"chat.{'txt' if is_plain else 'log'}", content)
    corpus = load(path, block_size=1)
    assert text_of(corpus).splitlines() == [f"{who}: {what}" for *_, who, what in said]
    left_out = f"lines that nobody wrote, left out: {len(said)}"
    assert any(left_out in str(note) for note in corpus.notes) == bool(coming)
    assert text_of(load(path, format="text", newlines="keep")).startswith(content[:-1])


NO_CHATS = [
    "07:05\tBerlin Hbf\tTrack 4\n08:40\tHamburg\tTrack 7\n10:02\tBremen\tTrack 1\n",
    "[00:01] the sea\n[00:04] the stone\n[00:09] and: the wind\n",
    "07:00 <info> started\n07:01 <warning> slow\n07:02 <info> stopped\n",
    "The letters.\n\nFrom Ann: the sea is near.\n<b> and the stone </b>\n",
    "1. (10:30) Moses: go.\n2. (10:31) the people went\n",
]


@pytest.mark.parametrize("text", NO_CHATS)
def test_times_alone_make_no_chat(tmp_path, load, text):
    assert text_of(load(write(tmp_path / "a.txt", text * 9), newlines="keep")).startswith(text)


STARTED = [f"[2026-03-01 07:00:00] {line}" for line in ("server started on port 80", "web: null", "db: <none>")]
MARKED = [
    "Messages and calls are end-to-end encrypted. Tap to learn more.",
    "mama: <Media omitted>",
    "mama: \u200eimage omitted",
]


def test_any_name_is_read_where_whatsapp_left_its_marks_and_a_log_that_starts_has_none(tmp_path, load):
    for marks in MARKED:
        lines = [marks, "mama: Are you there.", "bob42: I am."]
        chat = "".join(f"{day}/1/24, 9:15 PM - {line}\n" for day, line in enumerate(lines, 1))
        assert text_of(load(write(tmp_path / "chat.txt", chat), block_size=1)).splitlines() == lines[1:]
    corpus = load(write(tmp_path / "a.log", "\n".join(STARTED * 9)))
    assert text_of(corpus).startswith(STARTED[0]) and "perhaps a chat with dates" in str(corpus.warnings[0])


NAMES, SAID_BY = st.text("abé: ", min_size=1, max_size=9).filter(lambda one: one.strip(" :")), st.text("xyzß \n", max_size=20)
FORMS = {"csv": ("who", "said"), "jsonl": ("who.name", "said"), "json": ("all.who", "all.said")}


@given(st.lists(st.tuples(NAMES, SAID_BY), min_size=2, max_size=9), st.sampled_from([*FORMS]))
def test_a_chat_is_read_from_any_table_and_any_json(tmp_path, load, speeches, suffix):
    author, said = FORMS[suffix]
    rows = [{"who": {"name": who} if suffix == "jsonl" else who, "said": what} for who, what in speeches]
    table = io.StringIO()
    csv.writer(table).writerows([("who", "said"), *speeches])
    content = {"csv": table.getvalue(), "jsonl": "\n".join(map(json.dumps, rows)), "json": json.dumps({"all": rows})}[suffix]
    lines = [f"{' '.join(who.replace(':', ' ').split())}: {' '.join(what.split())}" for who, what in speeches if what.split()]
    path = write(tmp_path / f"any.{suffix}", content)
    if len(lines) > 1:
        assert text_of(load(path, author=author, field=said, format="fields", block_size=1)).splitlines() == lines
    with pytest.raises(UserError, match="no field 'whom'"):
        load(path, author="whom", field=said, format="fields", block_size=1)


@given(st.lists(st.text("aé→ß\\\"'😀", max_size=9), max_size=5))
def test_bytes_that_are_written_as_characters_are_put_together_and_other_characters_stay(texts):
    as_meta = [text.encode().decode("latin-1") for text in texts]
    for ascii_too in (True, False):
        noted = dict[str, list[int]]()
        source = "\n" + json.dumps(as_meta, ensure_ascii=ascii_too)
        assert json.loads(put_together(source, line=7, noted=noted)) == texts
        assert {*itertools.chain(*noted.values())} == {8} - {8 * all(map(str.isascii, texts))}
        if not any(set(text) <= {*map(chr, range(256))} for text in texts if not text.isascii()):
            assert json.loads(put_together(json.dumps(texts, ensure_ascii=ascii_too), line=1, noted={})) == texts


SOME = "name,who\nsea,elf\nstone,orc\nash,elf\nelm,elf\n"
ROWS = [dict(zip(("name", "who"), row.split(","))) for row in SOME.split()[1:]]
TABLES = {
    "a.csv": (SOME, {"field": "name", "format": "fields"}),
    "a.jsonl": ("\n".join(map(json.dumps, ROWS)), {"field": "name"}),
    "a.json": (json.dumps({"n": ROWS}), {"items": "n.name"}),
    "b.csv": ("1,sea,elf\n2,rock,orc\n3,ash,elf\n4,elm,elf\n", {"items": "2", "where": "3=elf"}),
}


@pytest.mark.parametrize("name", TABLES)
def test_any_field_of_a_record_chooses_which_are_kept(name, tmp_path, load):
    content, settings = TABLES[name]
    corpus = load(write(tmp_path / name, content), **{"where": "who=elf", **settings})
    assert sorted(text_of(corpus).split()) == ["ash", "elm", "sea"]
    with pytest.raises(UserError, match="is read without fields|no column|no field"):
        load(tmp_path / name, **settings | {"where": "none=elf"})


BAD = {
    "not JSON": ("r.json", json.dumps(CHAT, indent=1).replace('"fine', '"fine" x'), r"line \d+: not JSON"),
    "no text": ("r.json", json.dumps(CHAT, indent=0).replace('"text": "fine', '"t": "fine'), r"line \d\d: a message whose f"),
    "no object": ("r.json", json.dumps({**CHAT, "messages": [*TELEGRAM, 7]}), "line 1: a message whose field"),
    "no list": ("r.json", json.dumps({**ACCOUNT, "chats": {"list": [1]}}), "line 1: a message whose field"),
    "a quote": ("d.csv", DISCORD.replace("fine", '"fine'), r"line 7: a field in quotes has no closing quote"),
    "a comma": ("d.csv", DISCORD.replace("and you,,", "and you,x,x,x"), "line 7: 7 columns, but the header has 6"),
    "no sender": ("m.mbox", "From a Mon Jan  1 09:15:00 2024\nTo: Oma\n\nhi\n", "cannot be read, left out: 1, .*in line 1"),
    "media alone": ("w.txt", "1/1/24, 1:00 PM - Tom: <Media omitted>\n" * 9, "messages without text, left out: 9"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_chat_is_one_line_with_the_place(name, tmp_path, load):
    file, content, message = BAD[name]
    with pytest.raises(UserError, match=f"^.*{message}.*$"):
        load(write(tmp_path / file, content))

"""The jobs for which one call of a model is enough. Prompts and rules were made with their results at hand."""

import re
from typing import Final

from benchmarks.jobs.checks import (
    every,
    holds,
    in_order,
    items,
    json_with,
    lacks,
    language,
    mentions,
    mentions_some,
    no_chatter,
    plain,
    reworded,
    table,
    words,
)
from benchmarks.jobs.job import BenchJob

_REMINDER: Final = "Your invoice 4471 is 12 days overdue. Pay until Friday or we stop all deliveries. This is annoying."
_NOTICE: Final = """\
Dear residents,

as most of you will have noticed during the past few weeks, the pressure of the hot water in the upper floors has
been rather low, and after a long discussion with the caretaker and two companies we have now decided to have the old
pump in the cellar replaced by a new one. The work will be done on Thursday, 14 March, between 8 am and 1 pm. During
this time there will be no water at all in the whole house, neither hot nor cold, so please fill a few buckets or
bottles on the evening before. If you have questions, you can reach Mr Okafor, the caretaker, on 555-0142, as always.

We are sorry for the trouble and thank you for your patience,
the house management
"""
_GUESTS: Final = """\
Guest list summer party, still messy!!

- Ingrid Solberg, ingrid.solberg@nordmail.example, comes with two kids
- Tom (the new one in sales) -> tom.k@brightco.example
- Priya wrote from her private address: priya_r@posteo.example, but tweets as @priyacooks
- Mr. Haddad has no mail, call him: 0151 555 0177
- Lea and Jonas share one: lea-jonas@familie.example
- the band: contact is booking@thelowtides.example, they want to be paid in advance (@thelowtides on insta)
"""
_MINUTES: Final = """\
Minutes, board of the allotment garden club

We met on 3 February 2025 in the club house; nine members were present.
The spring clean is planned for 29 March 2025, starting at 9.
Fees are due by 15 April 2025. Whoever pays later pays 10 euros more, as since the meeting in 2019.
The seed swap takes place on 10 May 2025, this time with the school.
Room 12 stays locked.
"""
_ORDER: Final = """\
hi, it's Marta Lindqvist again (customer since 2016).
order no. is A-20931
could you send
  3 x the grey felt pots, that's FP-110
  1 x the watering can WC-7
  12 x plant labels, PL-001
to my new address in Uppsala? thanks a lot!!
"""
_BOOKING: Final = """\
BOOKING CONFIRMATION

Thank you, Mr. Daniel Osei!
Your room at Hotel Miramar is reserved. Reference: HM7-5582.
You arrive on 2025-09-04 and leave on 2025-09-07 (three nights, double room with sea view).
Breakfast is included. Total price: EUR 412.50, to be paid on arrival. Free cancellation up to 24 hours before.
"""
_LETTER: Final = """\
Madame, Monsieur,

Nous avons bien reçu votre commande du 6 mai. Malheureusement, la lampe bleue n'est plus en stock.
Nous pouvons vous livrer la lampe verte dans dix jours, ou vous rembourser.
Merci de nous répondre avant le 20 mai.

Cordialement,
Élise Moreau
"""
_RETURNS: Final = """\
# Returns

## General
You may send back most things within 30 days of delivery. The parcel is free if you use our label.

## Shoes and clothes
Unworn: 30 days, as everything else.
Worn outside: we still take them back within 14 days, but refund only half of the price.
Socks and underwear: no returns.

## Electronics
Within 21 days, in the original box. Opened software: no returns.

## Refunds
The money is on your account 5 working days after we have received the parcel.
"""
_POOL: Final = """\
Hallenbad Seestraße - Öffnungszeiten

Montag: geschlossen (Reinigung)
Dienstag bis Freitag: 6:30 bis 21:30 Uhr
Samstag: 8:00 bis 20:00 Uhr
Sonntag: 9:00 bis 18:00 Uhr
Feiertage: 10:00 bis 16:00 Uhr, auch wenn sie auf einen Montag fallen
Letzter Einlass 45 Minuten vor Schluss.

Eintritt: Erwachsene 5,80 €, Kinder 3,20 €, unter 4 Jahren frei.
"""
_INCIDENT: Final = """\
# Incident 2025-06-11: shop not reachable

At 14:05 the on-call engineer got an alert that the web shop answered with error 503. The status page was changed to
"partial outage" at 14:12. First the team suspected the load balancer, since it had been updated the day before, and
rolled it back at 14:30, without any effect.

At 14:50 Hye-jin found that the disk of the database server was full: the log rotation had been switched off during a
migration in May and never switched on again, so that the logs had grown to 480 GB. She removed old logs, and the shop
was back at 15:08.

During the 63 minutes about 1,900 customers saw errors, and an estimated 310 orders were lost.

What we do about it: log rotation is on again (done), an alert at 80 % disk usage is being set up by Marek until 18
June, and the checklist for migrations gets a line about log rotation.
"""
_REVIEW: Final = """\
I bought the Kestrel 2 tent for a two-week trip through Iceland in August, where we had rain on eleven of fourteen
days. It never leaked, not even in the storm near Vík, when two other tents on the camp site broke. Putting it up
takes me six minutes alone.

What I do not like: at 3.4 kg it is heavy, and you feel it after a day of walking. The zip of the inner tent
got stuck almost every evening; twice I was close to tearing the fabric. And for 389 euros I expect more than six pegs.

Still, I would buy it again, because staying dry is what counts. Four stars.
"""
_STOCK: Final = """\
article,shelf,stock,price
bolt M6,A3,1200,0.08
hinge,B1,85,2.40
sanding paper 120,C2,40,0.95
wood glue,C4,17,6.30
"""
_TEAM: Final = """\
# Who is who

| Name | Team | Since | Room |
|------|------|------:|------|
| Aino Virtanen | Support | 2019 | 2.14 |
| Ben Castillo | Sales | 2022 | 1.03 |
| Chidi Eze | Support | 2021 | 2.14 |
| Dora Novak | Finance | 2015 | 3.01 |
| Emre Kaya | Sales | 2024 | 1.05 |

Questions? Ask Dora.
"""
_TICKET: Final = """\
Subject: charged twice???

Hello, since the update last week everything runs smoothly, nice work on the dark mode! But when I looked at my
credit card today I saw the 9.99 for March two times, on the 3rd and again on the 4th. I only have one account. Please
give me one of them back. Cheers, Noor
"""
_COMMENT: Final = """\
The rooms are lovely and the staff could not have been kinder. Sadly we hardly slept: the bar below plays music until
three, and the breakfast was cold and over before ten. Beautiful place, but for us this was not a holiday.
"""

JOBS: Final[tuple[BenchJob, ...]] = (
    BenchJob(
        "friendlier-reminder",
        "one-call",
        f'Can you make this sound friendlier? I don\'t want to lose the customer. Keep the facts.\n\n"{_REMINDER}"',
        every(
            mentions("4471", ("12 days", "twelve days"), "Friday", ("deliver*", "shipment*", "shipping", "ship")),
            lacks("annoying"),
            reworded(_REMINDER, 0.8),
            words(15, 220),
            language("en"),
        ),
    ),
    BenchJob(
        "shorter-notice",
        "one-call",
        "notice.txt is far too long, nobody will read it. make it max 45 words but ppl need to know when, that there "
        "is NO water at all, and what to do the evening before",
        every(
            mentions(
                ("14 March", "March 14", "14th March", "March 14th", "14th of March", "14.3.", "14/3", "3/14"),
                ("8", "8am", "8:00", "08:00", "8.00", "eight"),
                (
                    "no water",
                    "without water",
                    "water will be off",
                    "water is off",
                    "water off",
                    "no hot or cold water",
                    "water supply",
                    "no hot nor cold water",
                    "water will be shut off",
                    "water shut off",
                    "water outage",
                    "water will be turned off",
                    "water will not be available",
                    "water will be unavailable",
                ),
                ("fill", "bucket*", "bottle*", "store water", "stock up"),
            ),
            words(12, 55),
        ),
        {"notice.txt": _NOTICE},
    ),
    BenchJob(
        "mail-addresses",
        "one-call",
        "Give me all the e-mail addresses in guests.txt, one per line, nothing else. I want to paste them into the BCC "
        "field.",
        every(
            mentions(
                "ingrid.solberg@nordmail.example",
                "tom.k@brightco.example",
                "priya_r@posteo.example",
                "lea-jonas@familie.example",
                "booking@thelowtides.example",
            ),
            lacks("priyacooks", "0177", "Haddad", "Ingrid Solberg"),
            items(5),
        ),
        {"guests.txt": _GUESTS},
    ),
    BenchJob(
        "dates-in-minutes",
        "one-call",
        "Which full dates (day, month, year) are in minutes.txt? List them in the form YYYY-MM-DD, earliest first.",
        every(
            in_order("2025-02-03", "2025-03-29", "2025-04-15", "2025-05-10"),
            holds(lambda text: len(set(re.findall(r"\d{4}-\d\d-\d\d", text))) == 4, "there are other dates"),
        ),
        {"minutes.txt": _MINUTES},
    ),
    BenchJob(
        "order-as-json",
        "one-call",
        "Turn the mail in order.txt into JSON and save it as order.json. Keys: customer, order_number, city, items. "
        "items is a list of objects with sku and quantity (a number).",
        json_with(
            {
                "customer": "Marta Lindqvist",
                "order_number": "A-20931",
                "city": "Uppsala",
                "items": [
                    {"sku": "FP-110", "quantity": 3},
                    {"sku": "WC-7", "quantity": 1},
                    {"sku": "PL-001", "quantity": 12},
                ],
            },
            "order.json",
        ),
        {"order.txt": _ORDER},
        ("order.json",),
    ),
    BenchJob(
        "booking-as-json",
        "one-call",
        "I need the booking in booking.txt as a JSON object with guest, reference, arrival, departure, nights, total "
        "and breakfast (true or false). The total without currency please.",
        json_with(
            {
                "guest": ("Daniel Osei", "Mr. Daniel Osei", "Mr Daniel Osei"),
                "reference": "HM7-5582",
                "arrival": "2025-09-04",
                "departure": "2025-09-07",
                "nights": 3,
                "total": 412.5,
                "breakfast": True,
            }
        ),
        {"booking.txt": _BOOKING},
    ),
    BenchJob(
        "lift-notice-in-german",
        "one-call",
        'Übersetz mir das bitte ins Deutsche, es kommt als Aushang in den Flur: "The lift is out of order until '
        'Tuesday evening. Please use the stairs next to the back entrance. We apologise for the inconvenience."',
        every(
            language("de"),
            mentions(
                ("Aufzug", "Lift", "Fahrstuhl", "der Aufzug"),
                ("Dienstagabend", "Dienstag*"),
                ("Treppe*",),
                (
                    "Hintereingang*",
                    "hinteren Eingang*",
                    "Rückeingang*",
                    "Eingang hinten",
                    "Hinterausgang*",
                    "rückwärtigen Eingang*",
                    "Hintertür*",
                ),
            ),
            mentions_some(1, "entschuldig*", "Unannehmlichkeit*", "Umstände", "tut uns leid", "bedauern", "Verzeihung"),
        ),
    ),
    BenchJob(
        "letter-from-french",
        "one-call",
        "translate lettre.txt into english pls and put it in letter.txt",
        every(
            language("en", "letter.txt"),
            mentions(
                "May",
                ("blue lamp", "blue light"),
                ("stock", "available", "sold out"),
                ("green lamp", "green light"),
                ("ten days", "10 days"),
                ("refund*", "reimburse*", "money back"),
                "20*",
                "Moreau",
                file="letter.txt",
            ),
            mentions(("6 May", "May 6", "May 6th", "6th May", "6th of May", "May 6,"), file="letter.txt"),
            no_chatter("letter.txt"),
        ),
        {"lettre.txt": _LETTER},
        ("letter.txt",),
    ),
    BenchJob(
        "worn-shoes",
        "one-call",
        "Question about returns.md: a customer has worn her shoes outside for a week and doesn't like them. How many "
        "days does she have to send them back, and how much money does she get?",
        every(
            mentions(("14", "fourteen", "two weeks"), ("half", "50 %", "50%", "50 percent", "one half")),
            lacks("21 days", "full refund of"),
            words(3, 150),
        ),
        {"returns.md": _RETURNS},
    ),
    BenchJob(
        "pool-on-a-holiday",
        "one-call",
        "Pfingstmontag ist ja Feiertag. Hat das Bad da auf, und wenn ja von wann bis wann? steht in bad.txt",
        every(
            mentions(("10", "10:00", "10.00"), ("16", "16:00", "16.00")),
            lacks("6:30", "21:30", "20:00"),
            holds(
                lambda text: not re.search(r"(bleibt|ist|hat)[^.]{0,30} (geschlossen|zu)\b", plain(text)), "it is open"
            ),
            words(2, 100),
        ),
        {"bad.txt": _POOL},
    ),
    BenchJob(
        "incident-in-three-points",
        "one-call",
        "Read incident.md and write summary.md for the management: exactly three bullet points - what happened, why, "
        "and what we do about it. No names needed.",
        every(
            items(3, file="summary.md"),
            mentions(("disk*", "storage", "database server"), ("log*",), file="summary.md"),
            mentions_some(
                2,
                "63",
                "1,900",
                "1900",
                "310",
                ("503", "not reachable", "unreachable", "outage", "down", "unavailable"),
                ("alert*", "80", "monitor*"),
                ("checklist*",),
                file="summary.md",
            ),
            words(20, 140, "summary.md"),
            reworded(_INCIDENT, 0.75, "summary.md"),
        ),
        {"incident.md": _INCIDENT},
        ("summary.md",),
    ),
    BenchJob(
        "tent-in-one-sentence",
        "one-call",
        "Sum up the review in tent.txt in ONE sentence, at most 40 words. It has to say what's good, what's bad, and "
        "whether the author would buy it again.",
        every(
            words(10, 44),
            mentions(
                ("dry", "leak*", "waterproof", "rain*", "storm*", "weather*", "watertight"),
                ("heavy", "weight", "3.4 kg", "zip*", "peg*"),
                ("buy it again", "buy again", "again", "repurchase", "rebuy", "recommend*"),
            ),
            holds(
                lambda text: len(re.findall(r"[.!?](?=\s+[A-Z]|\s*$)", text.strip())) <= 1, "there are more sentences"
            ),
            reworded(_REVIEW, 0.7),
        ),
        {"tent.txt": _REVIEW},
    ),
    BenchJob(
        "stock-as-markdown",
        "one-call",
        "Kannst du stock.csv als Markdown-Tabelle ausgeben? Spalten: Artikel, Bestand, Preis (das Regal brauche ich "
        "nicht).",
        every(
            table(
                ("bolt M6", 1200, 0.08),
                ("hinge", 85, 2.4),
                ("sanding paper 120", 40, 0.95),
                ("wood glue", 17, 6.3),
                count=4,
                header=(("Artikel", "Article"), ("Bestand", "Stock"), ("Preis", "Price", "Preis*")),
                columns=3,
            ),
            lacks("A3", "B1", "C4", "shelf", "Regal |"),
        ),
        {"stock.csv": _STOCK},
    ),
    BenchJob(
        "team-as-csv",
        "one-call",
        "Make a CSV file out of the table in team.md, team.csv, with header. Only name, team and room are needed.",
        every(
            table(
                ("Aino Virtanen", "Support", 2.14),
                ("Ben Castillo", "Sales", 1.03),
                ("Chidi Eze", "Support", 2.14),
                ("Dora Novak", "Finance", 3.01),
                ("Emre Kaya", "Sales", 1.05),
                count=5,
                header=("name", "team", "room"),
                columns=3,
                file="team.csv",
            ),
            lacks("2019", "Since", "Questions", file="team.csv"),
            no_chatter("team.csv"),
        ),
        {"team.md": _TEAM},
        ("team.csv",),
    ),
    BenchJob(
        "kind-of-ticket",
        "one-call",
        "Is ticket.txt about billing, a bug or a feature request? Answer with one of the words billing, bug, feature.",
        every(mentions("billing"), lacks("bug", "feature"), words(1, 40)),
        {"ticket.txt": _TICKET},
    ),
    BenchJob(
        "mood-of-a-comment",
        "one-call",
        "Would you say the guest in comment.txt is positive, negative or mixed about the hotel? One word.",
        every(mentions("mixed"), lacks("positive", "negative"), words(1, 25)),
        {"comment.txt": _COMMENT},
    ),
    BenchJob(
        "sentence-with-mistakes",
        "one-call",
        "fix the mistakes, change nothing else: \"Their is to many people which doesn't knows about you're new adress, "
        'so we send them a letter yesterday."',
        every(
            mentions(
                "There",
                "too many",
                ("who", "that"),
                ("don't know about", "do not know about"),
                "your new address",
                ("sent them a letter yesterday",),
            ),
            lacks("which doesn't", "adress ,", "send them a letter yesterday"),
            words(15, 90),
        ),
    ),
    BenchJob(
        "german-mistakes",
        "one-call",
        "Bitte nur die Fehler korrigieren, sonst nichts ändern: „Das der Zug verspätung hat, wussten wir garnicht, den "
        'niemand hat uns informirt, obwohl wir seid einer Stunde wartet."',
        every(
            mentions(
                "Dass der Zug",
                "Verspätung hat",
                "gar nicht",
                "denn niemand",
                "informiert",
                "seit einer Stunde",
                ("warteten", "warten", "gewartet haben", "gewartet hatten"),
            ),
            lacks("garnicht", "informirt", "seid einer"),
            holds(lambda text: "Verspätung" in text, "Verspätung needs a capital"),
            words(15, 90),
        ),
    ),
    BenchJob(
        "what-a-command-does",
        "one-call",
        "A colleague sent me this and says I should put it into cron. What does it do, and is anything lost?\n\n"
        "    find /var/log/app -name '*.log' -mtime +7 -delete",
        every(
            mentions(
                ("delete*", "remove*", "deletion"),
                (".log", "log file*", "log files"),
                ("7", "seven", "week"),
                ("/var/log/app", "directory", "folder"),
            ),
            mentions(
                ("days", "day", "week", "7-day", "seven-day"),
                (
                    "lost",
                    "lose",
                    "loses",
                    "losing",
                    "loss",
                    "gone",
                    "permanent*",
                    "irreversib*",
                    "recover*",
                    "undone",
                    "unrecoverable",
                    "irrecoverabl*",
                    "irretriev*",
                    "for good",
                    "backup*",
                    "back up",
                ),
            ),
            lacks("7 hours", "7 minutes", "larger than 7"),
            words(15, 350),
            reworded("find /var/log/app -name '*.log' -mtime +7 -delete", 0.8),
        ),
    ),
    BenchJob(
        "what-a-pattern-accepts",
        "one-call",
        "Explain this regular expression to somebody who doesn't program, and give two examples it accepts:  "
        r"^\d{5}(-\d{4})?$",
        every(
            mentions(("five", "5"), ("four", "4"), ("optional*", "may", "can", "or not", "maybe", "if", "or")),
            mentions_some(1, "digit*", "number*", "numeral*"),
            lacks("e-mail", "email"),
            holds(
                lambda text: bool(re.search(r"(?<![\d-])\d{5}(?![\d-])", text)), "an example of five digits is missing"
            ),
            holds(lambda text: bool(re.search(r"(?<!\d)\d{5}-\d{4}(?!\d)", text)), "an example with a dash is missing"),
            words(15, 350),
        ),
    ),
)  # Twenty jobs, of which every second one is held out

"""Answers to jobs for one call, written by hand: right ones in different words, and wrong ones."""

from dataclasses import dataclass

from benchmarks.jobs.job import JobAnswer


@dataclass(frozen=True, slots=True)
class HandWritten:
    """Answers to a job that its check has to accept, and others that it has to refuse."""

    right: tuple[JobAnswer, ...]
    wrong: tuple[JobAnswer, ...]


def _texts(right: list[str], wrong: list[str]) -> HandWritten:
    return HandWritten(tuple(map(JobAnswer, right)), tuple(map(JobAnswer, wrong)))


def _files(name: str, right: list[str], wrong: list[str]) -> HandWritten:
    made = [tuple(JobAnswer("", {name: text}) for text in texts) for texts in (right, wrong)]
    return HandWritten(made[0], (*made[1], *(JobAnswer(text) for text in right)))


_SUMMARY = """\
- The web shop was down for 63 minutes; about 1,900 customers saw errors and some 310 orders were lost.
- The disk of the database server was full because log rotation had been off since a migration in May.
- Log rotation is on again, an alert at 80 % disk usage follows by 18 June, and the migration checklist is extended.
"""
_LETTER = """\
Dear Sir or Madam,

We have received your order of May 6. Unfortunately, the blue lamp is out of stock. We can deliver the green lamp
within ten days, or refund you. Please reply before May 20.

Kind regards,
Élise Moreau
"""
_STOCK = """\
| Artikel | Bestand | Preis |
|---|---|---|
| bolt M6 | 1200 | 0.08 |
| hinge | 85 | 2.40 |
| sanding paper 120 | 40 | 0.95 |
| wood glue | 17 | 6.30 |
"""
_TEAM = """\
Name,Team,Room
Aino Virtanen,Support,2.14
Ben Castillo,Sales,1.03
Chidi Eze,Support,2.14
Dora Novak,Finance,3.01
Emre Kaya,Sales,1.05
"""
_MAILS = """\
ingrid.solberg@nordmail.example
tom.k@brightco.example
priya_r@posteo.example
lea-jonas@familie.example
booking@thelowtides.example
"""
_ORDER = """\
{"customer": "Marta Lindqvist", "order_number": "A-20931", "city": "Uppsala", "items": [
 {"sku": "FP-110", "quantity": 3}, {"sku": "WC-7", "quantity": 1}, {"sku": "PL-001", "quantity": 12}]}
"""
_BOOKING = (
    '{"guest": "Daniel Osei", "reference": "HM7-5582", "arrival": "2025-09-04", "departure": "2025-09-07", '
    '"nights": 3, "total": 412.50, "breakfast": true}'
)

ANSWERS: dict[str, HandWritten] = {
    "friendlier-reminder": _texts(
        [
            "Hello! We noticed that invoice 4471 is now 12 days overdue. Could you settle it by Friday, so that we can "
            "keep your deliveries coming? Thank you!",
            "Dear customer, this is just a kind reminder about invoice no. 4471, which was due twelve days ago... "
            "it is 12 days late. We would be grateful for your payment until Friday; otherwise, sadly, we would have "
            "to pause shipments.",
        ],
        [
            "Hello! Your invoice is overdue. Could you please pay soon so that we can keep delivering? Thank you!",
            "Ihre Rechnung 4471 ist 12 Tage überfällig, Friday deliveries und das ist nicht so gut für uns alle hier.",
        ],
    ),
    "shorter-notice": _texts(
        [
            "No water at all on Thursday, 14 March, 8 am to 1 pm (new pump). Please fill buckets or bottles the "
            "evening "
            "before. Questions: Mr Okafor, 555-0142.",
            "On March 14 from 8:00 to 13:00 the water will be off completely. Store water the night before, please.",
        ],
        [
            "On 14 March, 8 am to 1 pm, the hot water will be low. Please fill buckets the evening before, thank you.",
            "The pump in the cellar is replaced on 14 March at 8. There is no water. Sorry for the trouble it makes.",
        ],
    ),
    "mail-addresses": _texts(
        [
            _MAILS,
            f"Here are the addresses:\n\n- {_MAILS.strip()}".replace("\n", "\n- ").replace("\n- \n- - ", "\n\n- "),
        ],
        [_MAILS + "@priyacooks\n", _MAILS.replace("tom.k@brightco.example\n", ""), _MAILS.replace("_r", "")],
    ),
    "dates-in-minutes": _texts(
        [
            "2025-02-03\n2025-03-29\n2025-04-15\n2025-05-10",
            "1. 2025-02-03 (meeting)\n2. 2025-03-29 (spring clean)\n3. 2025-04-15 (fees)\n4. 2025-05-10 (seed swap)",
        ],
        [
            "2025-02-03, 2025-04-15, 2025-03-29, 2025-05-10",
            "2025-02-03\n2025-03-29\n2025-04-15\n2025-05-10\n2019-01-01",
        ],
    ),
    "order-as-json": _files(
        "order.json",
        [_ORDER],
        [_ORDER.replace("12", "11"), _ORDER[:-3], f"```json\n{_ORDER}```", '{"customer": "Marta"}'],
    ),
    "booking-as-json": _texts(
        [_BOOKING, f"```json\n{_BOOKING.replace('412.50', '412.5')}\n```\nAnything else?"],
        [_BOOKING.replace("true", "false"), _BOOKING.replace("3,", "4,"), "Daniel Osei, HM7-5582, 412.50"],
    ),
    "lift-notice-in-german": _texts(
        [
            "Der Aufzug ist bis Dienstagabend außer Betrieb. Bitte benutzen Sie die Treppe am Hintereingang. Wir "
            "entschuldigen uns für die Unannehmlichkeiten.",
            "Der Lift ist bis Dienstag Abend defekt. Bitte nehmen Sie die Treppen neben dem hinteren Eingang. "
            "Entschuldigung für die Umstände!",
        ],
        [
            "Der Aufzug ist bis Donnerstag außer Betrieb. Bitte benutzen Sie die Treppe am Hintereingang. Wir bitten "
            "um Entschuldigung.",
            "The lift (Aufzug) is out of order until Dienstag. Use the Treppe at the Hintereingang. Entschuldigung!",
        ],
    ),
    "letter-from-french": _files(
        "letter.txt",
        [
            _LETTER,
            _LETTER.replace("May 6", "the 6th of May")
            .replace("out of stock", "no longer available")
            .replace("ten", "10"),
        ],
        [
            _LETTER.replace("green", "blue"),
            _LETTER.replace(", or refund you", ""),
            f"Here is the translation:\n{_LETTER}",
            "Nous avons bien reçu votre commande, blue lamp stock green lamp ten days refund May 6 May 20 Moreau.",
        ],
    ),
    "worn-shoes": _texts(
        ["She has 14 days and gets half of the price back.", "Two weeks; 50% of what she paid."],
        [
            "She has 30 days and gets half.",
            "She has 14 days and gets a full refund.",
            "She has 21 days, or 14, and half.",
        ],
    ),
    "pool-on-a-holiday": _texts(
        ["Ja, es hat von 10 bis 16 Uhr geöffnet.", "Auf: 10:00-16:00 Uhr, letzter Einlass 15:15."],
        ["Nein, montags ist es geschlossen.", "Ja, von 9 bis 18 Uhr.", "Montag ist geschlossen, sonst 10 bis 16 Uhr."],
    ),
    "incident-in-three-points": _files(
        "summary.md",
        [
            _SUMMARY,
            "# Summary\n\n* **What happened:** The shop was unreachable for over an hour, 310 orders were lost.\n"
            "* **Why:** Logs had filled the disk, as log rotation was switched off.\n"
            "* **What we do:** Rotation is on, and we add an alert for disk usage and a line in the checklist.\n",
        ],
        [
            _SUMMARY + "- Marek sets up the alert.\n",
            "- It was bad.\n- The load balancer was broken by an update the day before it.\n- We rolled it back, "
            "so all is good.",
        ],
    ),
    "tent-in-one-sentence": _texts(
        [
            "The Kestrel 2 never leaked in two weeks of rain, but it is heavy and its zip gets stuck; the author would "
            "still buy it again.",
            "Though it weighs 3.4 kg and has a poor zip, the tent kept its owner dry in Iceland, who'd buy it again.",
        ],
        [
            "The tent is dry. It is heavy. The author would buy it again, as staying dry is what counts for him most.",
            "The Kestrel 2 tent is a great tent for two weeks in Iceland that the author would buy again any time.",
        ],
    ),
    "stock-as-markdown": _texts(
        [f"Hier ist die Tabelle:\n\n{_STOCK}", _STOCK.replace("Artikel", "**Artikel**").replace("2.40", "2,40")],
        [
            _STOCK.replace("| 85 ", "| 58 "),
            _STOCK.replace("| hinge | 85 | 2.40 |\n", ""),
            "Artikel,Bestand,Preis\nbolt M6,1200,0.08",
            _STOCK.replace("bolt M6 |", "bolt M6 | A3 |").replace("Artikel |", "Artikel | Regal |"),
        ],
    ),
    "team-as-csv": _files(
        "team.csv",
        [_TEAM, _TEAM.replace(",", ";").replace("Name", "name").replace("Room", "room")],
        [
            _TEAM.replace("Sales,1.05", "Sales,1.03"),
            f"```csv\n{_TEAM}```",
            _TEAM.replace("Support,", "Support,2019,"),
            _TEAM.split("\n", 1)[1],
        ],
    ),
    "kind-of-ticket": _texts(
        ["billing", "**Billing**", "The ticket is about billing: a double charge."],
        ["bug", "feature", "It is about billing, or maybe a bug."],
    ),
    "mood-of-a-comment": _texts(["Mixed.", "mixed"], ["Negative", "positive", "mixed to negative"]),
    "sentence-with-mistakes": _texts(
        [
            "There are too many people who don't know about your new address, so we sent them a letter yesterday.",
            "Corrected: *There are too many people that do not know about your new address, so we sent them a letter "
            "yesterday.*",
        ],
        [
            "Their are too many people who don't know about your new address, so we sent them a letter yesterday.",
            "There are too many people who don't know about your new address, so we send them a letter yesterday.",
            "There are too many people who don't know about your new adress.",
        ],
    ),
    "german-mistakes": _texts(
        [
            "Dass der Zug Verspätung hat, wussten wir gar nicht, denn niemand hat uns informiert, obwohl wir "
            "seit einer "
            "Stunde warteten.",
            "„Dass der Zug Verspätung hat, wussten wir gar nicht, denn niemand hat uns informiert, obwohl wir "
            "seit einer "
            "Stunde warten.“",
        ],
        [
            "Das der Zug Verspätung hat, wussten wir gar nicht, denn niemand hat uns informiert, obwohl wir seit einer "
            "Stunde warten.",
            "Dass der Zug verspätung hat, wussten wir gar nicht, denn niemand hat uns informiert, obwohl wir "
            "seit einer "
            "Stunde warten.",
        ],
    ),
    "what-a-command-does": _texts(
        [
            "It deletes all files whose names end in .log under /var/log/app that were last changed more than 7 "
            "days ago. "
            "The deleted logs are gone for good, so yes: old logs are lost.",
            "It finds log files in the folder that are older than a week (7 days) and removes them. You lose them "
            "permanently.",
        ],
        [
            "It lists the .log files in /var/log/app that are older than 7 days. Nothing is lost by that, so go ahead.",
            "It deletes the .log files in /var/log/app that are larger than 7 kilobytes, every few days at night time.",
        ],
    ),
    "what-a-pattern-accepts": _texts(
        [
            "It accepts exactly five digits, and optionally a hyphen and four more digits, like a US ZIP code. "
            "Examples: "
            "12345 and 12345-6789.",
            "The text must consist of 5 numbers. After them there may be a dash with 4 numbers. `90210` fits, and so "
            "does `90210-0001`.",
        ],
        [
            "It accepts five digits, and optionally four more digits after a hyphen, so it is a ZIP code, like 12345.",
            "It accepts e-mail addresses, such as 12345@x.example and 12345-6789@x.example, if they have 4 or 5 "
            "digits.",
        ],
    ),
}

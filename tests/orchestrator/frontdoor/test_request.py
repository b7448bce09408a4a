"""What a request says about files, in sentences as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.frontdoor.request import RequestFiles, missing_needs

FILES = ("notes.md", "guide.md", "src/app.py", "offer.txt")

MISSING = [
    ("Summarize report.md in three sentences.", "report.md"),
    ("What does budget.csv say about travel?", "budget.csv"),
    ("Please translate letter.txt into German.", "letter.txt"),
    ("Compare notes.md and plan.md.", "plan.md"),
    ("Find the bug in main.py and fix it.", "main.py"),
    ("Write a summary of report.md.", "report.md"),
    ("Create a table from data.csv.", "data.csv"),
    ("Write unit tests for slugify.py.", "slugify.py"),
    ("Which dates are mentioned in diary.txt?", "diary.txt"),
    ("Translate chapter1.md, chapter2.md and notes.md into French.", "chapter1.md chapter2.md"),
    ("List the open points of minutes.txt and save them as todo.md.", "minutes.txt"),
    ("Sort inventory.csv by price.", "inventory.csv"),
    ("Fasse bericht.md in drei Sätzen zusammen.", "bericht.md"),
    ("Was steht in protokoll.txt über den Umzug?", "protokoll.txt"),
    ("Übersetze brief.txt ins Englische.", "brief.txt"),
    ("Vergleiche notes.md mit plan.md.", "plan.md"),
    ("Bitte bericht.md zusammenfassen und in kurz.md speichern.", "bericht.md"),
    ("Schreibe eine Zusammenfassung von bericht.md.", "bericht.md"),
    ("Finde die Fehler in rechnung.py.", "rechnung.py"),
    ("Erstelle aus daten.csv eine Tabelle.", "daten.csv"),
    ("Résume rapport.md en trois phrases.", "rapport.md"),
    ("Que dit budget.csv sur les voyages ?", "budget.csv"),
    ("Traduis lettre.txt en allemand.", "lettre.txt"),
    ("Compare notes.md et plan.md.", "plan.md"),
    ("Écris un résumé de rapport.md.", "rapport.md"),
    ("Trouve les erreurs dans calcul.py.", "calcul.py"),
    ("Resume informe.md en tres frases.", "informe.md"),
    ("¿Qué dice presupuesto.csv sobre los viajes?", "presupuesto.csv"),
    ("Traduce carta.txt al alemán.", "carta.txt"),
    ("Compara notes.md con plan.md.", "plan.md"),
    ("Escribe un resumen de informe.md.", "informe.md"),
    ("Encuentra los errores en calculo.py.", "calculo.py"),
    ("Check docs/setup.md for typos.", "docs/setup.md"),
    ("Compare notes.md with the totals in sums.csv.", "sums.csv"),
    ("How many lines does access.log have?", "access.log"),
]

WRITTEN = [
    ("Write summary.md.", "summary.md"),
    ("Summarize notes.md and save it as summary.md.", "summary.md"),
    ("Summarize notes.md in summary.md.", "summary.md"),
    ("Translate guide.md into guide.de.md.", "guide.de.md"),
    ("Write a Python function slugify(text) and save it as slugify.py.", "slugify.py"),
    ("Write slugify.py and tests for slugify.py.", "slugify.py"),
    ("Write three files: a.md, b.md and c.md.", "a.md b.md c.md"),
    ("Put the result into result.json.", "result.json"),
    ("Write the answer to answer.txt.", "answer.txt"),
    ("Convert notes.md to notes.html.", "notes.html"),
    ("Create a file called plan.md with a plan for the week.", "plan.md"),
    ("Store the list in list.json.", "list.json"),
    ("Write a script backup.sh.", "backup.sh"),
    ("Write a README.md for src/app.py.", "README.md"),
    ("Schreibe eine Zusammenfassung von notes.md in kurz.md.", "kurz.md"),
    ("Fasse notes.md zusammen und speichere es als kurz.md.", "kurz.md"),
    ("notes.md zusammenfassen und in kurz.md speichern.", "kurz.md"),
    ("Erstelle eine Datei namens plan.md.", "plan.md"),
    ("Übersetze guide.md und leg das Ergebnis in guide.de.md ab.", "guide.de.md"),
    ("Résume notes.md et enregistre le résultat dans resume.md.", "resume.md"),
    ("Écris un script sauvegarde.sh.", "sauvegarde.sh"),
    ("Traduis guide.md et mets-le dans guide.fr.md.", "guide.fr.md"),
    ("Crée un fichier nommé plan.md.", "plan.md"),
    ("Traduis guide.md en anglais dans guide.en.md et résume-le.", "guide.en.md"),
    ("Resume notes.md y guárdalo como resumen.md.", "resumen.md"),
    ("Escribe un script copia.sh.", "copia.sh"),
    ("Traduce guide.md y guarda el resultado en guide.es.md.", "guide.es.md"),
    ("Convierte notes.md a notes.html.", "notes.html"),
    ("Crea un archivo llamado plan.md.", "plan.md"),
]

NEITHER = [
    "Write a Python script that reads data.csv and prints the sum.",
    "Write convert.py, which reads input.csv and writes output.json.",
    "Write a program to read data.csv. It should store its results in results.json.",
    "What is a requirements.txt?",
    "How do I write a setup.py?",
    "Explain how Node.js works.",
    "Write a function load(path). Load the settings from config.yaml.",
    'Translate "Open report.md and read it" into German.',
    "Summarize the page http://example.com/page.html for me",
    "Write to anna@example.md that I am late.",
    "Use version 3.5 of it, e.g. for tests, i.e. all of them.",
    "Summarize notes.md, but not draft.md.",
    "Schreibe ein Skript, das daten.csv liest und die Summe ausgibt.",
    "Écris un script qui lit data.csv et affiche la somme.",
    "Escribe un script que lee datos.csv y muestra la suma.",
    "Summarize Notes.md.",
    "Summarize app.py.",
    "Summarize report.md:\n\n# Report\nThe ship arrived on Monday.",
    "Explain this:\n```\nopen('report.md')\n```",
    "user: This is report.md: it is short.\nassistant: I see.\nuser: Summarize report.md.",
]


@pytest.mark.parametrize(("request_text", "missing"), MISSING)
def test_name_that_is_to_be_read_and_that_the_folder_lacks_is_missing(request_text: str, missing: str) -> None:
    assert RequestFiles.of(request_text, FILES).missing == tuple(missing.split())


@pytest.mark.parametrize(("request_text", "written"), WRITTEN)
def test_name_that_is_to_be_written_is_an_output_and_not_missing(request_text: str, written: str) -> None:
    read = RequestFiles.of(request_text, FILES)
    assert (read.outputs, read.missing) == (tuple(written.split()), ())


@pytest.mark.parametrize("request_text", NEITHER)
def test_name_that_may_be_anything_is_not_missing(request_text: str) -> None:
    assert RequestFiles.of(request_text, FILES).missing == ()


def test_named_files_come_in_the_order_of_the_request() -> None:
    read = RequestFiles.of("Compare offer.txt with notes.md, see app.py, and ignore guide.md.", FILES)
    assert read.named == ("offer.txt", "notes.md", "src/app.py")


def test_missing_file_is_reported_with_what_would_be_accepted() -> None:
    assert missing_needs("Summarize note.md.", FILES, False) == (
        "note.md is not among the files of the request (perhaps notes.md is meant)",
    )
    (alone,) = missing_needs("Summarize note.md.", (), False)
    assert "--dir FOLDER" in alone
    (others,) = missing_needs("Summarize zzzzzz.csv.", FILES, False)
    assert "notes.md, guide.md, src/app.py, offer.txt" in others


NAMES = st.from_regex(r"[a-z]{3,8}\.(md|txt|csv|py)", fullmatch=True)


@given(st.text(max_size=200), st.lists(NAMES, max_size=4, unique=True))
def test_every_text_can_be_read(text: str, files: list[str]) -> None:
    read = RequestFiles.of(text, files)
    assert set(read.named) <= set(files)
    assert set(read.missing).isdisjoint(files)
    assert set(read.missing).isdisjoint(read.outputs)


@given(NAMES, NAMES)
def test_file_that_is_there_is_never_missing(present: str, wanted: str) -> None:
    read = RequestFiles.of(f"Read {present} and write {wanted}.", [present])
    assert present in read.named
    assert read.missing == ()
    assert read.outputs == (() if wanted == present else (wanted,))

"""What a request says about files, in sentences as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.frontdoor.request import RequestFiles, missing_needs

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
    ("Answer mail.txt as style.md says.", "mail.txt style.md"),
    ("Traduce carta.txt como guia.md dice.", "carta.txt guia.md"),
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
    ("Answer the questions in questions.txt.", "questions.txt"),
    ("Write a reply to mail.txt.", "mail.txt"),
    ("Schreibe eine Antwort auf mail.txt.", "mail.txt"),
    ("Écris une réponse à mail.txt.", "mail.txt"),
    ("Escribe una respuesta a correo.txt.", "correo.txt"),
    ("Which of x.txt and y.txt is longer?", "x.txt y.txt"),
    ("Do what todo.md says.", "todo.md"),
    ("Add prices.csv to notes.md.", "prices.csv"),
    ("Add the totals of sums.csv.", "sums.csv"),
    ("Compare notes.md with notes.txt.", "notes.txt"),
    ("Vergleiche notes.md und notes.txt.", "notes.txt"),
    ("Which is longer, offer.txt or offer.md?", "offer.md"),
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
    ("Write clock.py. And add test_clock.py with tests - Rome is a valid zone.", "clock.py test_clock.py"),
    ("Schreibe uhr.py. Und füge test_uhr.py hinzu.", "uhr.py test_uhr.py"),
    ("Écris horloge.py. Ajoute test_horloge.py.", "horloge.py test_horloge.py"),
    ("Escribe reloj.py. Añade test_reloj.py.", "reloj.py test_reloj.py"),
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
    ("Corrige notes.md et enregistre le texte corrigé dans notes_corr.md.", "notes_corr.md"),
    ("Translate guide.md into German (guide.de.md), French (guide.fr.md).", "guide.de.md guide.fr.md"),
    ("Translate guide.md -> guide.de.md", "guide.de.md"),
    ("Traduis guide.md en anglais dans guide.en.md et résume-le.", "guide.en.md"),
    ("Resume notes.md y guárdalo como resumen.md.", "resumen.md"),
    ("Escribe un script copia.sh.", "copia.sh"),
    ("Traduce guide.md y guarda el resultado en guide.es.md.", "guide.es.md"),
    ("Convierte notes.md a notes.html.", "notes.html"),
    ("Crea un archivo llamado plan.md.", "plan.md"),
    ("The letter has to go out twice. staff.md: friendly and short. press.md: only the facts.", "staff.md press.md"),
    ("Put the names of all guests -> guests.csv", "guests.csv"),
    ("Antworte auf beide Mails. Ergebnis: eins.txt, zwei.txt", "eins.txt zwei.txt"),
    ("Explain the terms, one line each. terms.md", "terms.md"),
    ("Two files please. queue.py: class Queue. jobs.py: a function run(queue).", "queue.py jobs.py"),
]

NEITHER = [
    "Combine the summaries in book.md.",
    "Summarize the minutes (minutes.md).",
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

# request, files, new files that it wants: sentences without a verb of writing next to the name
IN_PASSING = [
    ("The findings of all chapters belong in findings.md.", "", "findings.md"),
    ("A function that counts letters, in letters.py please.", "", "letters.py"),
    ("I need a module units.py that converts miles, and tests in test_units.py.", "", "units.py test_units.py"),
    ("shapes.py should have a class Circle.", "", "shapes.py"),
    (
        "Write stack.py with a class Stack (push, pop, peek) and tests for it in test_stack.py.",
        "",
        "stack.py test_stack.py",
    ),
    ("I need a function is_leap(year) in leap.py plus pytest tests, test_leap.py please.", "", "leap.py test_leap.py"),
    (
        "Put a function that parses durations like 1h30m into duration.py. Tests go to test_duration.py.",
        "",
        "duration.py test_duration.py",
    ),
    ("parse.py has no tests yet. Write some, test_parse.py.", "parse.py", "test_parse.py"),
    ("Split shop.py into models.py and views.py.", "shop.py", "models.py views.py"),
    ("Mach mir aus liste.txt eine Tabelle für Excel: liste.csv mit zwei Spalten.", "liste.txt", "liste.csv"),
    ("Our web page wants songs.csv as JSON (songs.json), one object for each song.", "songs.csv", "songs.json"),
    ("Il me faut prix.md pour le tableur, donc prix.csv.", "prix.md", "prix.csv"),
    ("Move the helpers of app.py to helpers.py and import them from there.", "app.py", "helpers.py"),
    (
        "queue.py: a class BoundedQueue with put and get; test_queue.py: three tests for it.",
        "",
        "queue.py test_queue.py",
    ),
    ("Make a small CLI, wc.py, that counts words. `python wc.py FILE` prints the number.", "", "wc.py"),
    (
        "Please write a module money.py (class Money) and put its tests into test_money.py.",
        "",
        "money.py test_money.py",
    ),
    (
        "Create a JSON config loader: config.py with load(path), tests in tests/test_config.py.",
        "",
        "config.py tests/test_config.py",
    ),
    ("Write fib.py. test_fib.py should check the first ten numbers.", "", "fib.py test_fib.py"),
    (
        "Implement rot13 in rot13.py, and a test_rot13.py that checks that twice is the same text.",
        "",
        "rot13.py test_rot13.py",
    ),
    (
        "Schreib temperatur.py mit den Funktionen c_nach_f und f_nach_c und Tests dazu in test_temperatur.py.",
        "",
        "temperatur.py test_temperatur.py",
    ),
    ("Translate greet.js to Python (greet.py).", "greet.js", "greet.py"),
    ("Write a script backup.sh which copies FOLDER to FOLDER.bak, with a usage message.", "", "backup.sh"),
    (
        "Two files please: shapes.py with area functions, and main.py which uses them to print one.",
        "",
        "shapes.py main.py",
    ),
    (
        "Write an SQL schema for a library in schema.sql and a Python file db.py that opens library.db with it.",
        "",
        "schema.sql db.py",
    ),
    ("Extend calc.py with a power function and write test_power.py for it.", "calc.py", "test_power.py"),
    ("Write tests for matrix.py. Name the file test_matrix.py and use unittest.", "matrix.py", "test_matrix.py"),
    (
        "password.py should have check(password): a digit, a capital. Prove it with test_password.py.",
        "",
        "password.py test_password.py",
    ),
    (
        "Give me geometry.py and its tests (test_geometry.py): area and perimeter of rectangle and circle.",
        "",
        "geometry.py test_geometry.py",
    ),
    (
        "A module roman.py with to_roman and from_roman, and a file test_roman.py with pytest tests that go both ways.",
        "",
        "roman.py test_roman.py",
    ),
    (
        "Schreibe die Funktion median(zahlen) in statistik.py. Außerdem brauche ich test_statistik.py mit drei Tests.",
        "",
        "statistik.py test_statistik.py",
    ),
    (
        "Écris palindrome.py avec une fonction est_palindrome, et les tests dans test_palindrome.py.",
        "",
        "palindrome.py test_palindrome.py",
    ),
    ("Who attends? Make a list from guests.txt, attendees.csv with name,email please.", "guests.txt", "attendees.csv"),
    ("I need the minutes as bullet points in actions.md, one per person.", "minutes.txt", "actions.md"),
    ("Three files please: intro.md, body.md and end.md, made from talk.txt.", "talk.txt", "intro.md body.md end.md"),
    ("prices.json should contain every product with its price.", "shop.txt", "prices.json"),
    ("Shorten essay.md to 100 words -> short.md", "essay.md", "short.md"),
    ("essay.md is too long. Please make it half as long (essay_short.md).", "essay.md", "essay_short.md"),
    ("Give me a glossary.md for manual.txt.", "manual.txt", "glossary.md"),
    ("One file per language: text.fr.md, text.it.md. The original is text.md.", "text.md", "text.fr.md text.it.md"),
    ("Make a table of all animals in zoo.txt with columns name,age. File: animals.csv", "zoo.txt", "animals.csv"),
    (
        "The reply goes into reply.txt, polite, under 60 words. The complaint is in complaint.txt.",
        "complaint.txt",
        "reply.txt",
    ),
    ("faq.md: five questions and answers about product.txt", "product.txt", "faq.md"),
    (
        "Ich hätte gern eine Übersicht aller Termine aus mails.txt, termine.csv mit datum,ort.",
        "mails.txt",
        "termine.csv",
    ),
    ("Bitte den Text brief.txt auf Englisch als letter.txt.", "brief.txt", "letter.txt"),
    ("Kannst du aus rezept.txt eine Einkaufsliste machen? einkauf.txt", "rezept.txt", "einkauf.txt"),
    ("Turn the CVs into people.json.", "a.txt b.txt", "people.json"),
    ("merge jan.csv and feb.csv to q1.csv, header only once", "jan.csv feb.csv", "q1.csv"),
    ("Answer every question of quiz.txt in answers.txt, numbered.", "quiz.txt", "answers.txt"),
    ("For each city in cities.txt a paragraph, all of it in cities.md.", "cities.txt", "cities.md"),
    (
        "I want two versions of offer.txt: offer_short.txt with 50 words and offer_long.txt with 150 words.",
        "offer.txt",
        "offer_short.txt offer_long.txt",
    ),
    ("Extract names and phone numbers. Result in contacts.csv, columns name,phone.", "notes.txt", "contacts.csv"),
    ("Mach mir daraus eine Checkliste, checkliste.md.", "ablauf.txt", "checkliste.md"),
    ("Fais un tableau des dépenses de mars.txt : depenses.csv, colonnes date,montant.", "mars.txt", "depenses.csv"),
    ("Pásalo a una tabla, tabla.md, por favor.", "datos.txt", "tabla.md"),
    (
        "Could you put the ingredients of soup.txt and cake.txt in one shopping list (shopping.txt)?",
        "soup.txt cake.txt",
        "shopping.txt",
    ),
    ("We need welcome.md for new colleagues; everything you need is in facts.txt.", "facts.txt", "welcome.md"),
]
READ_IN_PASSING = [
    "util.py crashes when I start it. Fix it.",
    "In utils.py there is a function foo. Explain it.",
    "What does setup.py do, and is it like setup.cfg?",
    "Write a script that imports helpers.py.",
    "Write a tool for people who have no config.py.",
    "Summarize the minutes, but not plan.md.",
    "app.py doesn't start, please help.",
    "app.py crashes with a KeyError. Please fix it.",
    "My script backup.sh deletes the wrong files, can you repair it?",
    "Please give me the main points of reprot.md.",
    "I need the totals from sales.csv.",
    "Please look at main.py and tell me what it does.",
    "Can you check thesis.md for typos?",
    "I want a summary of talk.txt.",
    "I need help with app.py.",
    "Please proofread letter.txt.",
    "Give me the third line of log.txt.",
    "There is a bug in parser.py, please find it.",
    "The table is in prices.csv. Please make a chart of it.",
    "You find my draft in draft.md. Please shorten it to 100 words.",
    "Here is my CV: cv.md. Write a cover letter.",
    "I have written poem.txt. Please make it rhyme.",
    "Attached is report.docx, please translate it.",
    "See guide.md. I need a shorter version.",
    "config.yaml is wrong, please correct the port.",
    "In offer.txt and extra.csv, which rows differ?",
    "Bitte hilf mir mit aufgabe.py.",
    "In vertrag.txt steht die Frist, bitte nenne sie.",
    "Der Fehler ist in rechner.py, bitte behebe ihn.",
    "Ich brauche die Summe aus umsatz.csv.",
    "J'ai besoin du total de ventes.csv.",
    "Necesito un resumen de informe.md.",
    "El error está en main.py, arréglalo por favor.",
    "I'd like to know what changelog.md says about version 2.",
    "Please write a poem like the one in poem.txt.",
    "Please write tests for stack.py.",
    "Please summarise notes.md and put it next to offer.txt.",
    "I want to send offer.pdf to a customer. Write the mail.",
    "Is there anything in todo.md that is urgent? Give me a list.",
]

FOLDER = ("a.md", "b.md", "notes.md", "offer.txt", "app.py", "guide.md")
NOT_MISSING = [
    "Write a packing list for each trip and one overall budget in budget.json.",
    "Write a short test plan and a check list in checks.md.",
    "Split notes.md into part1.md and part2.md.",
    "Split notes.md in two files: intro.md and rest.md.",
    "Convert offer.txt to sales.json and sales.yaml.",
    "Rename the functions in app.py and give me the new app2.py.",
    "Write a Dockerfile and a docker-compose.yml for app.py.",
    "Make a package.json for a small web app.",
    "Give me an index.html with a red button.",
    "Give me a Makefile and a requirements.txt for app.py.",
    "I need a README.md for app.py.",
    "Create main.py, utils.py and tests/test_utils.py for a todo list.",
    "Add a docstring to app.py and return it as app_doc.py.",
    "Merge a.md and b.md into all.md.",
    "Combine a.md, b.md to c.md",
    "The result should be in out.json.",
    "Output: result.csv",
    "Summarize notes.md. Output file: summary.txt",
    "Answer in a file named answer.txt: what is in notes.md?",
    "Translate notes.md; the translation goes to notes.fr.md.",
    "Extract all dates of notes.md to dates.json.",
    "Extract the names from notes.md into names.txt, one per line.",
    "List the open points of notes.md in todo.md.",
    "Collect all prices from offer.txt in prices.txt.",
    "Sort offer.txt and store as sorted.csv",
    "Schreibe die Summen aus offer.txt nach summen.json.",
    "Erstelle aus notes.md eine Liste (liste.md).",
    "Gib mir eine index.html mit einem roten Knopf.",
    "Ich brauche eine README.md für app.py.",
    "Teile notes.md in teil1.md und teil2.md auf.",
    "Wandle offer.txt in sales.json um.",
    "Das Ergebnis soll in ergebnis.txt stehen.",
    "Fasse notes.md in kurz.md zusammen.",
    "Extrahiere die Namen aus notes.md in namen.txt.",
    "Convertis offer.txt en sales.json.",
    "J'ai besoin d'un README.md pour app.py.",
    "Extrais les dates de notes.md dans dates.json.",
    "Fusionne a.md et b.md en tout.md.",
    "Le résultat doit être dans sortie.txt.",
    "Convierte offer.txt en sales.json.",
    "Necesito un README.md para app.py.",
    "Extrae las fechas de notes.md en fechas.json.",
    "Une a.md y b.md en todo.md.",
    "El resultado debe estar en salida.txt.",
    "Write unit tests for app.py using pytest in test_app.py",
    "Fix app.py so that it also reads config.yaml.",
    "Change app.py to load its settings from settings.toml.",
    "Extend app.py: it should write a log to app.log.",
    "Write a .gitignore and a setup.cfg.",
    "Explain what a pyproject.toml is for.",
    "Why would someone use a requirements.txt instead of setup.py?",
    "Write an essay about README.md files.",
    "Write a story in which a hacker finds secret.txt.",
    "Generate three variants: v1.md, v2.md, v3.md.",
    "Generate test data as users.csv with 10 rows.",
    "Invent a menu and save it under menu.txt.",
    "Draft an email to bob@firm.com about notes.md.",
    "Write the German version of guide.md to guide_de.md, and the French one to guide_fr.md.",
    "Rewrite notes.md as a poem in poem.txt.",
    "From offer.txt, make report.md.",
    "Take notes.md and produce slides.md.",
    "Use offer.txt to create chart.svg.",
    "Turn notes.md into checklist.md.",
    "Improve guide.md, save as guide2.md, and describe the changes in changes.md.",
    "Review app.py and put your findings in review.md.",
    "Check a.md against b.md, result in check.md.",
]


@pytest.mark.parametrize(("request_text", "missing"), MISSING)
def test_name_that_is_to_be_read_and_that_the_folder_lacks_is_missing(request_text: str, missing: str) -> None:
    assert RequestFiles.of(request_text, FILES).missing == tuple(missing.split())


@pytest.mark.parametrize(("request_text", "written"), WRITTEN)
def test_name_that_is_to_be_written_is_an_output_and_not_missing(request_text: str, written: str) -> None:
    read = RequestFiles.of(request_text, FILES)
    assert (read.outputs, read.missing) == (tuple(written.split()), ())


@pytest.mark.parametrize(("request_text", "files", "written"), IN_PASSING)
def test_a_new_file_may_be_named_in_passing(request_text: str, files: str, written: str) -> None:
    assert set(RequestFiles.of(request_text, files.split()).outputs) == set(written.split())
    assert missing_needs(request_text, files.split(), False) == ()


@pytest.mark.parametrize("request_text", READ_IN_PASSING)
def test_a_name_in_passing_is_no_new_file_if_it_may_be_read(request_text: str) -> None:
    assert RequestFiles.of(request_text, FILES).outputs == ()


@pytest.mark.parametrize("request_text", NEITHER)
def test_name_that_may_be_anything_is_not_missing(request_text: str) -> None:
    assert RequestFiles.of(request_text, FILES).missing == ()


@pytest.mark.parametrize("request_text", NOT_MISSING)
def test_request_that_can_be_done_is_not_refused(request_text: str) -> None:
    assert missing_needs(request_text, FOLDER, False) == ()


def test_named_files_come_in_the_order_of_the_request() -> None:
    read = RequestFiles.of("Compare offer.txt with notes.md, see app.py, and ignore guide.md.", FILES)
    assert read.named == ("offer.txt", "notes.md", "src/app.py")


def test_file_that_is_only_to_be_written_need_not_be_read() -> None:
    read = RequestFiles.of("Summarize guide.md and save it as notes.md.", FILES)
    assert (read.named, read.outputs) == (("guide.md",), ())
    assert RequestFiles.of("Correct notes.md and save it as notes.md.", FILES).named == ("notes.md",)


def test_names_in_a_long_text_are_not_those_of_the_user() -> None:
    assert RequestFiles.of("Summarize this: " + "Read report.md and write b.md. " * 60, FILES) == RequestFiles()


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


def test_a_file_of_a_range_may_be_left_out() -> None:
    files = tuple(f"claim{number}.txt" for number in range(1, 5))
    read = RequestFiles.of("Sum up claim1.txt to claim4.txt without claim3.txt.", files)
    assert read.named == ("claim1.txt", "claim2.txt", "claim4.txt")


@given(st.integers(0, 10**30), st.integers(0, 10**30))
def test_a_range_has_only_files_that_exist(low: int, high: int) -> None:
    files = tuple(f"r{number}.txt" for number in (1, 2, 3, 40))
    named = RequestFiles.of(f"Translate r{low} to r{high}.", files).named
    assert set(named) <= {file for file in files if low <= int(file[1:-4]) <= high}


def test_a_range_names_files() -> None:
    files = ("a.txt", "r1.txt", "r2.txt", "r3.txt")
    assert RequestFiles.of("Translate r1 to r3, then a.txt.", files).named == ("a.txt", "r1.txt", "r2.txt", "r3.txt")
    assert RequestFiles.of("Translate r1.txt to r3.txt.", files).named == ("r1.txt", "r2.txt", "r3.txt")

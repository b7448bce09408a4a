"""Which requests have nothing that could be split among steps, by their words alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.frontdoor.direct import SHORT, parts_in

WHOLE = """
Write a haiku about autumn rain.
What is the capital of Australia?
Summarize notes.txt in three sentences.
Translate letter.txt into German.
Translate "red, green and blue" into French.
Rewrite mail.txt so that it sounds polite.
Extract name, date and amount from invoice.txt as JSON.
Classify review.txt as positive, negative or neutral.
Give me five names for a cat café.
Explain recursion to a child.
Write a Python function is_prime(n).
Read config.yaml and tell me which port it uses.
How many words does essay.txt have?
Fix the spelling in draft.md
Turn table.csv into a Markdown table with the columns name, age and city.
Summarize report.txt, then translate the summary into Spanish.
Translate from English into German: "Good morning, Anna and Tom"
Compare Paris and London as places to live.
Write an email to Bob that says that I am ill.
Is this sentence correct? 'He go, she go and they go.'
Who orders chairs, how many and when, according to notes.txt?
Write a story with a dragon, a knight and a castle.
Schreib ein Gedicht über den Herbst.
Koche ein Gericht mit Reis, Bohnen und Mais.
Was ist die Hauptstadt von Peru?
Fasse notes.txt in drei Sätzen zusammen.
Übersetze letter.txt ins Englische.
Übersetze letter.txt vom Deutschen ins Französische.
Formuliere mail.txt höflicher.
Wer bestellt Stühle, wie viele und bis wann?
Erkläre mir, was ein Hash ist.
Schreibe eine Python-Funktion, die eine Liste umdreht.
Lies config.yaml und sag mir, welcher Port benutzt wird.
Finde den Fehler in main.py
Lies rechnung.txt und gib Name, Datum und Betrag als JSON aus.
Écris un poème sur la mer.
Qui commande des chaises, combien et pour quand ?
Quelle est la capitale du Canada ?
Résume notes.txt en trois phrases.
Traduis letter.txt en anglais.
Explique ce que fait main.py
Extrais le nom, la date et le montant de facture.txt en JSON.
Réécris mail.txt pour qu'il soit plus poli.
Escribe un poema sobre el invierno.
¿Quién pide sillas, cuántas y para cuándo?
¿Cuál es la capital de Perú?
Resume notes.txt en tres frases.
Traduce letter.txt al inglés.
Explica qué hace main.py
Extrae nombre, fecha e importe de factura.txt como JSON.
Corrige la ortografía de draft.md
"""

DIVISIBLE = """
Translate letter.txt into German, French and Spanish.
Translate letter.txt into German and French.
Write a paragraph about cats, dogs and birds.
Summarize each chapter of book.txt.
For every customer in list.csv, write a short greeting.
Describe the product for developers, managers and customers.
Write three versions of a slogan for a bakery.
Give two variants of the headline in post.md
Write a function slugify and tests for it.
Write slugify with unit tests.
Summarize notes.txt and write an email about it. Write a tweet about it.
Write a summary and a list of open questions of notes.txt
Write a haiku about autumn. Write a limerick about spring.
Check the report for: - spelling\\n- numbers\\n- tone
Do this: 1) read a.txt 2) write a title
Review the code separately for speed, safety and style.
Übersetze letter.txt ins Englische, Französische und Spanische.
Übersetze letter.txt ins Englische und Französische.
Fasse jedes Kapitel von buch.txt zusammen.
Schreibe jeweils einen Satz zu Hund, Katze und Maus.
Schreib zwei Varianten eines Slogans für eine Bäckerei.
Beschreibe das Produkt für Entwickler, Manager und Kunden.
Schreibe eine Funktion und Tests dazu.
Schreibe eine Zusammenfassung und eine Liste der offenen Punkte von notes.txt
Beschreibe Berlin, Hamburg und München.
Traduis letter.txt en anglais, en allemand et en espagnol.
Traduis letter.txt en anglais et en allemand.
Résume chaque chapitre de livre.txt
Écris trois versions d'un slogan pour une boulangerie.
Décris le produit pour des développeurs, des chefs et des clients.
Écris un résumé et une liste des questions ouvertes.
Écris une phrase sur chacun des sujets.
Traduce letter.txt al inglés, al alemán y al francés.
Traduce letter.txt al inglés y al francés.
Resume cada capítulo de libro.txt
Escribe tres versiones de un eslogan para una panadería.
Describe Madrid, Sevilla y Bilbao.
Escribe un resumen y una lista de preguntas abiertas.
Escribe una función y pruebas para ella.
"""


def lines(text: str) -> list[str]:
    return [line.replace("\\n", "\n") for line in text.strip().splitlines()]


@pytest.mark.parametrize("request_text", lines(WHOLE))
def test_a_request_without_parts(request_text: str) -> None:
    assert parts_in(request_text, reads=1, files=1, writes=0) == ""


@pytest.mark.parametrize("request_text", lines(DIVISIBLE))
def test_a_request_with_parts(request_text: str) -> None:
    assert parts_in(request_text, reads=1, files=1, writes=0)


@pytest.mark.parametrize(
    ("reads", "files", "writes", "part"),
    [(2, 2, 0, "it is about 2 files"), (0, 0, 2, "it asks for 2 files"), (1, 9, 1, ""), (0, 9, 0, "")],
)
def test_several_files_are_parts(reads: int, files: int, writes: int, part: str) -> None:
    assert parts_in("Answer the letter.", reads=reads, files=files, writes=writes) == part


@pytest.mark.parametrize(
    "request_text",
    [
        "Summarize the files that index.txt names.",
        "Fasse die Dateien zusammen.",
        "Résume les fichiers.",
        "Lee los archivos.",
    ],
)
def test_other_files_of_the_folder_may_be_meant(request_text: str) -> None:
    assert parts_in(request_text, reads=1, files=3, writes=0) == "it may be about several files"
    assert parts_in(request_text, reads=1, files=1, writes=0) == "", "the folder has no other file"
    assert parts_in("Summarize notes.txt", reads=1, files=3, writes=0) == "", "it names the one that it is about"


@given(st.lists(st.text("abé", min_size=5), min_size=SHORT // 5).map(" ".join))
def test_a_long_request_may_have_parts_that_no_pattern_finds(request_text: str) -> None:
    assert parts_in(request_text, reads=0, files=0, writes=0) == "it is long"


@given(st.text(max_size=SHORT), st.integers(0, 3), st.integers(0, 3))
def test_any_text_is_read(request_text: str, reads: int, more: int) -> None:
    parts_in(request_text, reads=reads, files=reads + more, writes=0)

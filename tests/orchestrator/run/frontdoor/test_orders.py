"""Which requests need a tool that nobody has."""

import pytest

from orchestrator.run.frontdoor.request import needed_tool

ORDERS = [
    ("Book me a flight to Lisbon for Friday.", "books"),
    ("Can you please reserve a table for two at eight?", "books"),
    ("Send an email to Anna that I am late.", "sends"),
    ("Please email my boss that I am sick.", "sends"),
    ("Call my mum.", "calls"),
    ("Buy two tickets for the concert.", "buys"),
    ("Order me a pizza.", "buys"),
    ("Look up the phone number of the town hall.", "searches"),
    ("Search the web for news about bees.", "searches"),
    ("Summarize https://example.com/news.", "reads web"),
    ("What is the weather in Berlin?", "present"),
    ("What's the current price of gold?", "present"),
    ("What time is it?", "present"),
    ("Remind me to water the plants.", "calendars"),
    ("Turn off the lights.", "devices"),
    ("Post this picture on Instagram.", "publishes"),
    ("Buche mir einen Flug nach Lissabon.", "books"),
    ("Kannst du bitte einen Tisch für zwei reservieren?", "books"),
    ("Schick eine E-Mail an Anna.", "sends"),
    ("Ruf meine Mutter an.", "calls"),
    ("Kaufe zwei Karten für das Konzert.", "buys"),
    ("Suche im Internet nach einem Rezept.", "searches"),
    ("Wie ist das Wetter in Berlin?", "present"),
    ("Wie spät ist es?", "present"),
    ("Erinnere mich an die Blumen.", "calendars"),
    ("Réserve une table pour deux.", "books"),
    ("Envoie un message à Paul.", "sends"),
    ("Cherche sur Internet une recette de crêpes.", "searches"),
    ("Quel temps fait-il à Paris ?", "present"),
    ("Achète deux billets.", "buys"),
    ("Rappelle-moi d'arroser les plantes.", "calendars"),
    ("Reserva una mesa para dos.", "books"),
    ("Envía un correo a Ana.", "sends"),
    ("Busca en internet una receta de paella.", "searches"),
    ("¿Qué tiempo hace en Madrid?", "present"),
    ("Compra dos entradas.", "buys"),
]

TEXTS = [
    "Write an email to Anna that I am late.",
    "Write a message that books a table for two.",
    "Draft a letter to the bank and a reminder.",
    "Translate 'Book me a flight to Lisbon' into German.",
    "Explain how to book a flight.",
    "What is the capital of France?",
    "Order these words by length: pear, fig, apple.",
    "Call the function twice and explain the result.",
    "Find the longest word in this sentence.",
    "Check the grammar of this sentence: He go home.",
    "Write a poem about the weather in Berlin.",
    "Book reviews: list three things that a good one has.",
    "Write a Python function send(message).",
    "Is it true that whales are mammals?",
    "Search the list for duplicates: 1, 2, 2.",
    "Summarize how email works.",
    "Schreibe eine E-Mail an Anna.",
    "Erkläre, wie man einen Flug bucht.",
    "Finde drei Wörter, die sich auf Haus reimen.",
    "Écris un courriel à Paul.",
    "Explique comment réserver une table.",
    "Escribe un correo a Ana.",
    "Send me a poem about rain.",
    "Tell me about online shopping.",
    "Buy or rent? List the advantages of both.",
    "Book review of a novel about a train.",
    "Remind me what a prime number is.",
    "Call the new column total and explain it.",
    "Google Maps: name three alternatives.",
    "Set a timer in JavaScript.",
    "What is the weather like in this text: it rained all day.",
    "Kaufvertrag in einfachen Worten erklären.",
    "Appelle la fonction deux fois.",
    "Recuérdame qué es un número primo.",
    "Explica cómo comprar entradas.",
]


@pytest.mark.parametrize(("request_text", "needed"), ORDERS)
def test_order_that_only_a_tool_can_fulfil_is_recognized(request_text: str, needed: str) -> None:
    assert needed in needed_tool(request_text, names_files=False)


@pytest.mark.parametrize("request_text", TEXTS)
def test_request_for_a_text_needs_no_tool(request_text: str) -> None:
    assert needed_tool(request_text, names_files=False) == ""


def test_what_could_be_looked_up_may_stand_in_a_named_file() -> None:
    asked = "What is the current price of gold in prices.csv?"
    assert needed_tool(asked, names_files=False)
    assert needed_tool(asked, names_files=True) == ""
    assert needed_tool("Send offer.txt to Anna by email.", names_files=True)

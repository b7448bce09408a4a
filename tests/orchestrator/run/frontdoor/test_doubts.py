"""What speaks against an answer, in requests and answers as people and models write them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.run.frontdoor.doubt import Doubt, WrittenAnswer
from orchestrator.run.frontdoor.doubts import doubts

TIPS = "1. Keep a fixed bedtime.\n2. Avoid screens.\n3. Keep the room cool."
BULLETS = "Here are some ideas:\n\n- Plant herbs.\n- Build a bench.\n- Paint the fence.\n- Hang a swing."
ENGLISH = (
    "The meeting was moved to Friday because the room is not free on Thursday. All of the guests have been told about "
    "it, "
    "and the catering will be there at noon."
)
GERMAN = (
    "Die Besprechung wurde auf Freitag verschoben, weil der Raum am Donnerstag nicht frei ist. Alle Gäste sind "
    "informiert, "
    "und das Essen wird um zwölf Uhr geliefert."
)
FRENCH = (
    "La réunion est reportée à vendredi parce que la salle n'est pas libre jeudi. Tous les invités sont au courant, "
    "et le "
    "repas sera livré à midi dans la grande salle."
)
SPANISH = (
    "La reunión se ha aplazado al viernes porque la sala no está libre el jueves. Todos los invitados lo saben, y la "
    "comida "
    "llegará a las doce a la sala grande con el resto."
)
LONG = " ".join(["The garden needs water every morning in summer."] * 12)

DOUBTFUL = [
    ("Give me five tips for better sleep.", TIPS, "You asked for 5 tips; the answer has 3."),
    (
        "Write 5 quiz questions about rivers.",
        "1. What?\n2. Who?\n3. Where?\n4. When?",
        "You asked for 5 questions; the answer has 4.",
    ),
    ("List three ideas for our small garden.", BULLETS, "You asked for 3 ideas; the answer has 4."),
    (
        "Name at least six countries in Asia.",
        "Japan, India, Nepal",
        "You asked for at least 6 countries; the answer has at most 3.",
    ),
    (
        "Suggest at most two titles for the talk.",
        "- Rivers\n- Lakes\n- Seas",
        "You asked for at most 2 titles; the answer has 3.",
    ),
    ("Make a list of four reasons to cycle.", '["health", "money"]', "You asked for 4 reasons; the answer has 2."),
    ("Nenne mir fünf Tipps gegen Stress.", TIPS, "You asked for 5 tipps; the answer has 3."),
    ("Schreibe vier Fragen zum Thema Wald.", "1. Was?\n2. Wer?\n3. Wo?", "You asked for 4 fragen; the answer has 3."),
    ("Summarize notes.txt in four bullet points.", "- a\n- b", "You asked for 4 bullet points; the answer has 2."),
    ("Gib mir genau zwei Beispiele.", BULLETS, "You asked for 2 beispiele; the answer has 4."),
    ("Donne-moi cinq conseils pour dormir.", TIPS, "You asked for 5 conseils; the answer has 3."),
    ("Propose trois titres pour mon article.", "Le vent", "You asked for 3 titres; the answer has at most 1."),
    ("Dame cinco consejos para estudiar mejor.", TIPS, "You asked for 5 consejos; the answer has 3."),
    ("Escribe cuatro preguntas sobre el mar.", "1. ¿Qué?\n2. ¿Quién?", "You asked for 4 preguntas; the answer has 2."),
    (
        "Summarize notes.txt in one sentence.",
        ENGLISH + " Please tell Tom.",
        "You asked for at most 1 sentence; the answer has 3.",
    ),
    ("Summarize notes.txt in at most 50 words.", LONG, "You asked for at most 50 words; the answer has 96."),
    ("Summarize notes.txt in 20 words or less.", LONG, "You asked for at most 20 words; the answer has 96."),
    ("Describe the garden in at least 100 words.", ENGLISH, "You asked for at least 100 words; the answer has 31."),
    (
        "Fasse notes.txt in höchstens 30 Wörtern zusammen.",
        GERMAN * 3,
        "You asked for at most 30 words; the answer has 76.",
    ),
    (
        "Beschreibe den Plan in einem Satz.",
        GERMAN + " Bitte sag es Tom.",
        "You asked for at most 1 sentence; the answer has 3.",
    ),
    (
        "Résume notes.txt en une phrase.",
        FRENCH + " Dis-le à Tom.",
        "You asked for at most 1 sentence; the answer has 3.",
    ),
    (
        "Sum up notes.txt in ONE sentence, at most 40 words. Say who comes and whether the room is free.",
        ENGLISH,
        "You asked for at most 1 sentence; the answer has 2.",
    ),
    (
        "notes.txt is too long. Make it max 45 words but say what happens, and when the food comes.",
        LONG,
        "You asked for at most 45 words; the answer has 96.",
    ),
    (
        "Sag in höchstens 40 Wörtern, wer kommt und wann das Essen kommt.",
        GERMAN * 3,
        "You asked for at most 40 words; the answer has 76.",
    ),
    (
        "I need 3 subject lines for each of our 4 newsletters!",
        "1. Bikes\n2. Zoo, pandas\n3. Pool\n4. Cinema",
        "You asked for 12 lines in all; the answer has at most 4.",
    ),
    (
        "Schreib zwei Fragen zu jedem der drei Kapitel.",
        "Bienen: Wer legt Eier?\nAmeisen: Was essen sie?\nTermiten: Wo leben sie?",
        "You asked for 6 fragen in all; the answer has at most 3.",
    ),
    (
        "Two quiz questions with their answers, please.",
        "Sure, I can help you with that. Please provide the text of the chapter.",
        "The answer asks for something instead of answering.",
    ),
    ("Resume notes.txt en menos de 20 palabras.", SPANISH, "You asked for at most 20 words; the answer has 34."),
    (
        "Answer in at most 40 characters: who is the host?",
        ENGLISH,
        "You asked for at most 40 characters; the answer has 156.",
    ),
    (
        "Extract the dates of notes.txt as JSON.",
        "The dates are Monday and Friday.",
        "You asked for JSON; the answer is something else.",
    ),
    ("Gib die Termine als JSON aus.", "Montag, Freitag", "You asked for JSON; the answer is something else."),
    (
        "Convert notes.txt into CSV.",
        "Tea costs four euros.\nMilk is cheap.\nBread is dear.",
        "You asked for CSV; the answer is something else.",
    ),
    (
        "Show the prices as a Markdown table.",
        "tea: 4\nmilk: 2",
        "You asked for a Markdown table; the answer is something else.",
    ),
    ("Write the main facts as bullet points.", ENGLISH, "You asked for a list; the answer is something else."),
    ("Translate notes.txt into German.", ENGLISH, "You asked for German; the answer is in English."),
    ("Antworte bitte auf Deutsch.", ENGLISH, "You asked for German; the answer is in English."),
    ("Traduis notes.txt en anglais.", FRENCH, "You asked for English; the answer is in French."),
    ("Traduce notes.txt al francés.", SPANISH, "You asked for French; the answer is in Spanish."),
    ("Übersetze notes.txt ins Spanische.", GERMAN, "You asked for Spanish; the answer is in German."),
    (
        "Was ist der beste Weg, um mit dem Garten im Winter nicht zu viel Arbeit zu haben?",
        ENGLISH,
        "You asked in German; the answer is in English.",
    ),
    (
        "Explain to me in short what the board has said about the new building.",
        SPANISH,
        "You asked in English; the answer is in Spanish.",
    ),
    ("Plan a picnic.", "Done.", "The answer says only 'Done.'."),
    ("Schreibe einen kurzen Bericht.", "Erledigt.", "The answer says only 'Erledigt.'."),
    ("Plan a picnic for ten people.", "---\n\n***", "The answer is empty."),
    (
        "Write a short poem about the wind in May.",
        "Write a short poem about the wind in May.",
        "The answer only repeats the request.",
    ),
    ("Summarize the report.", "I'm sorry, but I cannot open files.", "The answer says that this cannot be done."),
    (
        "Fasse den Bericht zusammen.",
        "Es tut mir leid, ich kann die Datei nicht öffnen.",
        "The answer says that this cannot be done.",
    ),
    (
        "Summarize the report.",
        "Sure! Please provide the text of the report.",
        "The answer asks for something instead of answering.",
    ),
    (
        "Give me all e-mail addresses in notes.txt, nothing else.",
        "```\nann@a.example\n0151 44\nben@b.example\n```",
        "You asked for e-mail addresses; the answer has '0151 44' among them.",
    ),
    (
        "Check every claim against the rules.",
        "\n".join(f"Claim {n}\n- Hotels are paid up to 120 euros.\n- Alcohol is never paid at all." for n in range(4)),
        "The answer repeats the same lines.",
    ),
    (f"Make this friendlier: {ENGLISH} Come on time.", ENGLISH, "The answer only repeats the request."),
]

RIGHT = [
    ("Give me three tips for better sleep.", TIPS),
    ("Give me three tips for better sleep.", "Keep a fixed bedtime, avoid screens and keep the room cool."),
    (
        "Give me three tips for better sleep.",
        "**Tip 1:** Read.\n\n- It calms.\n- It tires.\n\n**Tip 2:** Walk.\n\n- Air.",
    ),
    ("Give me 3 tips.", "### 1. Read\nIt calms.\n### 2. Walk\nIt tires.\n### 3. Rest\nIt helps."),
    ("Name at least two fruits.", "Apples, pears and plums"),
    ("Name up to five countries in Asia.", "- Japan\n- India"),
    ("Summarize the three ideas in notes.txt.", "The first idea is best."),
    ("Write two questions for each file.", "1. a?\n2. b?\n3. c?\n4. d?"),
    ("Give me three questions and answers about tea.", "1. Q\n2. A\n3. Q\n4. A\n5. Q\n6. A"),
    ("Nenne drei Vorteile und drei Nachteile.", "1. a\n2. b\n3. c\n4. d\n5. e\n6. f"),
    ("Nenne mir drei Gründe.", "Erstens ist es billig. Zweitens ist es leise. Drittens macht es Spaß."),
    ("Liste die fünf Städte aus notes.txt auf.", "- Bonn\n- Köln"),
    ("Donne trois exemples.", "- Paris\n- Lyon\n- Nice"),
    ("Enumera tres ciudades de Perú.", "Lima, Cusco y Arequipa"),
    ("List three animals with a short remark.", "- cat\n  - purrs\n- dog\n  - barks\n- cow\n  - moos"),
    ("Write a Python function that returns five names.", "def names():\n    return ['a', 'b', 'c', 'd', 'e']"),
    ("Suggest about ten names for a cat.", "\n".join(f"- Name{n}" for n in "abcdefgh")),
    ("How many questions are in notes.txt?", "There are 5 questions."),
    ("Summarize notes.txt in one sentence.", "Dr. Lee met Mr. Tan at 5 p.m. in St. Gallen, e.g. for tea."),
    ("Summarize notes.txt in one sentence.", "# Summary\nThe room is not free."),
    ("Summarize notes.txt in at most 50 words.", " ".join(["word"] * 52)),
    ("Summarize a.txt in at most 50 words and list all names.", " ".join(["word"] * 90)),
    ("Can you sum up a.txt in at most 50 words, and when is the talk?", " ".join(["word"] * 90)),
    (
        "Write 2 tips for each of the 3 rooms.",
        "- Kitchen\n  - wipe\n  - air\n- Hall\n  - a\n  - b\n- Bath\n  - c\n  - d",
    ),
    ("Write two tips for each of the three rooms.", "Kitchen: wipe and air.\nHall: sweep, tidy.\nBath: dry; clean."),
    ("Translate the first two sentences of notes.txt into German.", GERMAN + " Ende. Ja. Nein."),
    ("Write a story in which each sentence has at most 10 words.", LONG),
    ("Write a text with sentences of at most 12 words.", LONG),
    ("Write about 100 words on gardens.", LONG),
    ("Fasse notes.txt in zwei Sätzen zusammen.", GERMAN),
    ("Résume notes.txt en deux phrases.", FRENCH),
    ("Resume notes.txt en dos frases.", SPANISH),
    ("Write a title of 5 words for the text.", "Rivers of the North"),
    ("Extract the dates as JSON.", '```json\n{"dates": ["Monday"]}\n```'),
    ("Extract the dates as JSON.", "Here they are:\n```json\n[1, 2]\n```\nEnjoy!"),
    ("What does the data in JSON format say about tea?", "It costs four euros."),
    ("Write a script that prints the dates as JSON.", "print(1)"),
    ("Convert notes.txt into CSV.", "name,price\ntea,4\nmilk,2"),
    ("Show the prices as a Markdown table.", "| tea | 4 |\n|---|---|\n| milk | 2 |"),
    ("Show the prices as a Markdown table.", "Prices:\n\ntea | 4\n:---|---:\nmilk | 2\n"),
    ("Write the main facts as bullet points.", "- one\n- two"),
    ("Write the main facts as bullet points.", "- Tea costs four euros.\n- Milk is cheap.\n- Bread is dear.\n"),
    ("Translate notes.txt into German.", GERMAN),
    ("Translate notes.txt from German into English.", ENGLISH),
    ("Translate 'good morning' into French.", "Bonjour"),
    ("Summarize the letter, which is written in French.", ENGLISH),
    ("Explain the difference between the German words der and dem to me.", GERMAN),
    ("Translate notes.txt into German, French and Spanish.", GERMAN + "\n\n" + FRENCH + "\n\n" + SPANISH),
    ("Schreibe einen englischen Brief an den Vermieter, weil die Heizung nicht geht.", ENGLISH),
    ("Write a haiku about rain.", "Soft rain on the roof\nthe old cat opens one eye\nand closes it soon"),
    ("Is Rome the capital of Italy?", "Yes."),
    ("Is the build done?", "Done."),
    ("Which word is missing? Reply with one word.", "Done"),
    ("Say hello to all of the new people here.", "Hello to all of the new people here!"),
    ("Sort these words: pear, apple, fig, plum, kiwi", "apple, fig, kiwi, pear, plum"),
    ("Write a mail that declines the invitation.", "I'm sorry, but I cannot come on Friday."),
    ("Write a short reply to the customer.", "Could you please provide your order number?"),
    ("Write a short reply to the customer.", "Sure, I can help you with that. Please provide your order number."),
    ("Schreibe eine Absage.", "Leider kann ich nicht kommen."),
    ("What is 12 * 12?", "144"),
    ("Draw a line.", "-----x-----"),
    ("Which sign is used for addition?", "The sign +"),
    ("Propose un titre.", "Le vent d'hiver"),
    ("How do I order a coffee in French?", ENGLISH),
    ("Compare the prices in Spanish shops with ours.", ENGLISH),
    ("Summarize the letter in French.", ENGLISH),
    (
        "Correct this sentence and tell me what is wrong with it: Ich habe nach Hause gegangen, weil es spät war.",
        GERMAN,
    ),
    ("Write five interview questions for a cook.", "- Can you share a recipe?\n- Why?\n- How?\n- When?\n- Who?"),
    ("Give me three reasons to cycle, then put them into German.", "- a\n- b\n- c\n\n- d\n- e\n- f"),
    ("Draw a line of ten dashes.", "----------"),
    ("user: Give me five tips.\nassistant: 1. Read.\nuser: Now only the shortest one.", "Read."),
    ("Fasse notes.txt in drei Stichpunkten zusammen.", "- a\n- b\n- c"),
    ("Describe the tour in 3 steps.", "Go. Look. Come back."),
    ("Nombra dos animales.", "El gato y el perro"),
    ("Write ten words about spring.", "Green leaves, warm air, birds singing, children playing outside, rain."),
]


def against(request: str, text: str, **inputs: str) -> list[str]:
    answer = WrittenAnswer({"s1.txt": text}, {"s1.txt": text}, inputs)
    return [doubt.text for doubt in doubts(request, ("notes.txt", "a.txt"), answer)]


def demands(request: str, text: str, **inputs: str) -> list[str]:
    answer = WrittenAnswer({"s1.txt": text}, {"s1.txt": text}, inputs)
    return [doubt.demand for doubt in doubts(request, tuple(inputs), answer)]


@pytest.mark.parametrize(("request_text", "text", "expected"), DOUBTFUL)
def test_a_wrong_answer_is_doubted(request_text: str, text: str, expected: str) -> None:
    assert against(request_text, text) == [expected]


@pytest.mark.parametrize(("request_text", "text"), RIGHT)
def test_an_answer_that_may_be_right_is_not_doubted(request_text: str, text: str) -> None:
    assert against(request_text, text) == []


@pytest.mark.parametrize(
    ("request_text", "text", "expected"),
    [
        ("Summarize a.txt", "The lamp arrived on Thursday.", ["a.txt is empty."]),
        ("Summarize a.txt and notes.txt", "The lamp arrived on Thursday.", ["a.txt and notes.txt are empty."]),
        ("Summarize empty.txt", "The lamp arrived on Thursday.", ["empty.txt is empty."]),
        ("Summarize a.txt", "a.txt is empty.", []),
        ("Fasse a.txt zusammen", "Die Datei hat keinen Inhalt.", []),
        ("How many lines does a.txt have?", "0 lines", []),
        ("Is a.txt empty?", "Yes", []),
        ("Summarize the records", "The lamp arrived on Thursday.", []),
    ],
)
def test_an_answer_about_an_empty_file_is_doubted_unless_it_says_so(
    request_text: str, text: str, expected: list[str]
) -> None:
    inputs = {"a.txt": " \n", "notes.txt": "", "empty.txt": ""}
    assert against(request_text, text, **inputs) == expected


def test_an_answer_that_fills_an_empty_file_is_not_doubted() -> None:
    answer = WrittenAnswer({"a.txt": "A haiku."}, {"a.txt": "A haiku."}, {"a.txt": ""})
    assert doubts("Write a haiku into a.txt", ("a.txt",), answer) == ()


@pytest.mark.parametrize(
    ("request_text", "output", "is_doubted"),
    [
        ("Merge both lists into all.txt. And tell me how many things each of us wrote down.", "all.txt", True),
        ("Schreib beide Listen in all.txt und sag mir, wie viele Dinge es sind.", "all.txt", True),
        ("Réunis les deux listes dans all.txt et dis-moi combien il y en a.", "all.txt", True),
        ("Tell me how many things we wrote down.", "s1.txt", False),
        ("Write all.txt and tell me when you are done.", "all.txt", False),
        ("Write all.txt, one thing a line.", "all.txt", False),
    ],
)
def test_an_answer_of_files_alone_is_doubted_if_something_was_to_be_told(
    request_text: str, output: str, is_doubted: bool
) -> None:
    answer = WrittenAnswer({output: "bread\nmilk"}, {output: "bread\nmilk"}, {})
    doubt = Doubt("You also asked to be told something; the answer has only files.")
    assert (doubt in doubts(request_text, ("a.txt", "b.txt"), answer)) is is_doubted


def test_a_paragraph_in_another_language_than_all_else_is_doubted() -> None:
    request = "Was steht in notes.txt, und was muss ich noch für die Gäste machen, wenn der Raum nicht frei ist?"
    mixed = f"{GERMAN * 3}\n\n{ENGLISH}"
    doubt = "You asked in German; some of the answer is in English."
    assert against(request, mixed, **{"notes.txt": GERMAN}) == [doubt]
    assert against(request, GERMAN, **{"notes.txt": GERMAN}) == []
    assert against(request, mixed, **{"notes.txt": GERMAN, "a.txt": ENGLISH}) == []
    assert against(f"{request} Die Gäste sind zum Teil englische Freunde.", mixed, **{"notes.txt": GERMAN}) == []
    assert against("Erkläre mir bitte, was in dem alten Gedicht von der Rose steht.", mixed) == [], "it may be quoted"


def test_an_answer_in_the_language_of_what_it_was_made_from_is_not_doubted() -> None:
    request = "Correct the mistakes in the text of notes.txt and keep all the rest as it is."
    assert against(request, GERMAN, **{"notes.txt": GERMAN.replace("Gäste", "Geste")}) == []
    assert against(request, GERMAN, **{"notes.txt": ENGLISH}) == ["You asked in English; the answer is in German."]


def test_a_summary_that_repeats_its_input_is_doubted() -> None:
    assert against("Summarize notes.txt.", LONG, **{"notes.txt": LONG}) == ["The answer only repeats notes.txt."]
    assert against("Correct notes.txt.", LONG, **{"notes.txt": LONG}) == []


def test_an_answer_with_lines_for_some_of_the_files_is_doubted() -> None:
    texts = dict.fromkeys(("r1.txt", "r2.txt", "r3.txt", "r4.txt"), "Un texte court.")
    request = "What do r1 to r4 say in English? Name the language of each."
    some = "[r1.txt] - French\n- **r4.txt**: French, a short text"
    assert against(request, some, **texts) == ["The answer says nothing of r2.txt and r3.txt."]
    assert against(request, f"{some}\nr2.txt and r3.txt: the same", **texts) == []
    assert against("Which of the files are in French?", some, **texts) == []
    assert against(request, "All of them are short.", **texts) == []
    rules = {"rules.txt": "Any language is welcome."}
    every = "\n".join(f"{name}: French" for name in texts)
    assert against("Check r1 to r4 against rules.txt.", every, **texts, **rules) == []
    first = "R1: it is in French."
    assert against(request, first, **texts) == ["The answer says nothing of r2.txt and r3.txt and r4.txt."]
    assert against("What do r1 to r4 say in English?", first, **texts) == [], "nobody spoke of each of them"
    words_too = dict.fromkeys(("zoo.txt", "pool.txt", "bikes.txt"), "A short text.")
    assert against("Three titles for each of the texts.", "Zoo: five new monkeys", **words_too) == []
    in_line = "R1.txt: in French. R3.txt: in French, too. R4.txt: in French."
    assert against(request, in_line, **texts) == ["The answer says nothing of r2.txt."]


def test_an_answer_with_parts_for_some_of_the_names_is_doubted() -> None:
    request = "Write one paragraph each for Oslo, Lima and Bonn about what to do on a rainy day."
    rain = "There are museums and cafes for a day on which it rains from the morning to the evening."
    market = "The market under the roof of the old station is open, and a tram goes there from the centre."
    some = f"Oslo:\n{rain}\n\n**Bonn**\n{market}"
    assert against(request, some) == ["The answer says nothing of Lima."]
    assert against(request, f"{some}\n\nIn Lima it never rains.") == []
    same = f"{some}\n\n## Lima\n{rain}"
    assert against(request, same) == ["The answer says the same of Oslo and Lima."]
    letters = request.replace("one paragraph", "one letter")
    assert against(letters, same) == [], "letters to several may be the same"
    assert against("Which of Oslo, Lima and Bonn is the largest? One sentence each.", f"Oslo is. {rain}") == []
    assert against("Compare Oslo, Lima and Bonn.", some) == [], "nobody spoke of each of them"
    german = "Schreib bitte für Wien, Genf und Graz je einen Absatz darüber, was man dort sehen kann."
    sights = "Dort ist vieles zu sehen, das man nicht kennt, und es wird in der Stadt auch viel gebaut."
    assert against(german, f"Wien: {sights}\nGraz: {sights}") == ["The answer says nothing of Genf."]


def test_a_number_of_items_for_each_file_of_a_kind_is_counted() -> None:
    texts = dict.fromkeys(("chapter1.txt", "chapter2.txt"), "Bees dance. The queen lays many eggs.")
    request = "Write two quiz questions with their answers for each chapter."
    question = "Q: What do bees do?\nA: They dance."
    right = "\n".join(f"Chapter {number}\n{question}\n{question}" for number in (1, 2))
    assert against(request, right, **texts) == []
    assert against(request, f"{right}\n{question}", **texts) == [
        "You asked for 2 questions for each chapter, so 4 in all; the answer has 5."
    ]
    assert against(request, f"Chapter 1\n{question}", **texts) == [
        "You asked for 2 questions for each chapter, so 4 in all; the answer has at most 1."
    ]
    assert demands(request, question, **texts) == ["Give exactly 2 questions for each chapter, and no more."]
    assert against(request, question, **texts, **{"notes.txt": "Bees."}) == [], "the notes may be a chapter, too"
    assert against("Two questions per pupil, please.", question, **texts) == []


def test_items_above_the_number_for_each_file_are_left_out_by_code() -> None:
    request = "Write two quiz questions with their answers for each chapter."
    inputs = dict.fromkeys(("chapter1.txt", "chapter2.txt"), "Bees dance. The queen lays many eggs.")

    def quiz(*counts: int) -> str:
        items = ["".join(f"{number}. What?\n   - That.\n\n" for number in range(1, count + 1)) for count in counts]
        return "\n".join(f"**Chapter {number}**\n{listed}" for number, listed in enumerate(items, 1))

    def corrected(text: str) -> list[str] | None:
        (doubt,) = doubts(request, tuple(inputs), WrittenAnswer({"s1.txt": text}, {"s1.txt": text}, inputs))
        return None if doubt.corrected is None else doubt.corrected.split()

    assert corrected(quiz(3, 4)) == quiz(2, 2).split()
    assert corrected(quiz(3, 2)) == quiz(2, 2).split()
    assert corrected(quiz(3, 2).replace("**Chapter 1**", "Chapter 1: Bees")) is not None
    assert corrected(quiz(4, 1)) is None
    assert corrected("What? That.\n" * 5) is None
    assert corrected(quiz(3, 3).replace("2. What?", "2. What? Why?")) is None, "what is one question, nobody knows"


def test_a_reply_with_a_sentence_of_the_mail_as_its_own_is_doubted() -> None:
    mail = {"mail_kim.txt": "Hello, are you open on Sunday? I would like to collect the roses myself.\nKim"}
    request = "Answer the mail politely."
    doubt = "A sentence of mail_kim.txt is in the reply, as if it were its own."
    copied = "Dear Kim, yes, we are. I would like to collect the roses myself."
    assert against(request, copied, **mail) == [doubt]
    assert against("Write a short reply to Kim.", copied, **mail) == [doubt]
    demand = "Reply to mail_kim.txt as the one who got it, in sentences that are not in it."
    assert demands(request, copied, **mail) == [demand]
    own = "Dear Kim, yes, we are, and your roses are ready on Sunday."
    assert against(request, own, **mail) == []
    assert against(request, f"> I would like to collect the roses myself.\n{own}", **mail) == [], "a quotation"
    assert against("Shorten the mail.", "I would like to collect the roses myself.", **mail) == []
    german = {"mail.txt": "Guten Tag, ich möchte die Rosen am Samstag gern selbst abholen.\nDeniz"}
    copy = "Guten Tag, ich möchte die Rosen am Samstag gern selbst abholen."
    assert against("Beantworte die Mail kurz.", copy, **german) == [doubt.replace("mail_kim", "mail")]


def test_a_summary_that_copies_nearly_all_of_its_inputs_is_doubted() -> None:
    texts = {
        "notes.txt": ENGLISH,
        "a.txt": "The band has asked for a stage of six by four metres and for two plugs on it.",
    }
    copied = "\n".join(f"{number}. {text}" for number, text in enumerate(texts.values(), 1))
    request = "Summarize both files and tell me which one is about the band."
    assert against(request, f"{copied}\n\nThe second one.", **texts) == ["The answer only repeats the texts."]
    assert against("Correct both files.", f"{copied}\n\nThe second one.", **texts) == []
    first_sentence = ENGLISH.split(". ")[0]
    assert against(request, f"{first_sentence}. A band wants a stage.", **texts) == [], "a summary may quote"


def test_an_explanation_that_copies_its_source_is_doubted() -> None:
    request = "Explain the terms in notes.txt for a beginner."
    assert against(request, ENGLISH, **{"notes.txt": ENGLISH}) == ["The answer only repeats notes.txt."]
    assert against(request, "A stage is where the band plays.", **{"notes.txt": ENGLISH}) == []


@pytest.mark.parametrize(
    "request_text",
    ["Summarize notes.txt.", "Read notes.txt and write summary.txt.", "Résume chacune des notes.", "Resume el texto."],
)
def test_a_summary_that_is_longer_than_its_source_is_doubted(request_text: str) -> None:
    source = " ".join(f"word{chr(97 + at % 26)} and more" for at in range(30))
    longer = " ".join(f"other{chr(97 + at % 26)} und mehr" for at in range(31))
    output = "summary.txt" if "summary.txt" in request_text else "s1.txt"
    for text, expected in ((longer, True), (" ".join(longer.split()[:60]), False)):
        answer = WrittenAnswer({output: text}, {output: text}, {"notes.txt": source})
        found = [doubt.text for doubt in doubts(request_text, ("notes.txt",), answer)]
        doubt = "You asked for a summary; the answer is longer than what it was made from."
        assert (doubt in found) == expected


@pytest.mark.parametrize(
    "request_text",
    ["Write a detailed summary of notes.txt.", "Summarize notes.txt, then list what is open.", "Polish my resume."],
)
def test_a_text_that_may_be_longer_than_its_source_is_not_doubted(request_text: str) -> None:
    source, longer = "one two three four five six " * 11, "seven eight nine ten eleven twelve " * 13
    assert against(request_text, longer, **{"notes.txt": source}) == []


def test_a_listed_file_that_does_not_mention_the_topic_is_doubted() -> None:
    notes = {
        "n1.txt": "The boilers were checked.",
        "n2.txt": "Roses for the garden.",
        "n3.txt": "Heizkessel und Boiler gewartet",
    }
    request = "I need all about the boiler. Which of the notes mention it? Only the names."
    doubt = "The answer lists n2.txt, without a word like 'boiler'."
    assert against(request, "n1.txt, n2.txt, n3.txt", **notes) == [doubt]
    assert against("Which notes mention our boiler?", "n2.txt and n1.txt", **notes) == [doubt]
    assert against("Welche Notizen erwähnen den Boiler?", "n1.txt, n2.txt", **notes) == [doubt]
    assert against(request, "n1.txt and n3.txt", **notes) == []
    assert against(request, "n1.txt and n3.txt mention it, n2.txt does not.", **notes) == []
    assert against("Which of the notes are about the boiler?", "n2.txt", **notes) == []


PROGRAM = """Here is a script:
```python
import re

text = open("shop.log").read()
for line in text.splitlines():
    if re.search("ERROR", line):
        print(line)
```
"""


def test_a_program_that_would_find_the_answer_is_none() -> None:
    logs = {"shop.log": "12:31:02 ERROR payment timed out", "search.log": "08:00:06 INFO index opened"}
    doubt = "The answer is a program, and not what it would find."
    assert against("What was the first ERROR in each of the log files?", PROGRAM, **logs) == [doubt]
    assert against("Welcher Fehler war der erste?", PROGRAM, **logs) == [doubt]
    assert against("What was the first error? Write a script.", PROGRAM, **logs) == []
    assert against("How do I find the first error in shop.log?", PROGRAM, **logs) == []
    assert against("What was the first error?", PROGRAM.replace("shop.log", "any.log"), **logs) == []
    assert against("What does it print?", PROGRAM, **{"shop.py": "print(1)"}) == []


@pytest.mark.parametrize(
    ("request_text", "text", "demand"),
    [
        ("Summarize notes.txt in one sentence.", ENGLISH, "Use at most 1 sentence."),
        ("Summarize notes.txt in at most 50 words.", LONG, "Use at most 26 words."),
        ("Describe the garden in at least 100 words.", ENGLISH, "Use at least 100 words."),
        ("Give me five tips for better sleep.", TIPS, "Give 5 tips."),
        ("Write 3 lines for each of the 4 rooms.", "Kitchen\nBath", "Give 12 lines in all."),
        ("Gib die Termine als JSON aus.", "Montag, Freitag", "Write it as JSON."),
        ("Translate notes.txt into German.", ENGLISH, ""),
    ],
)
def test_what_an_answer_lacks_can_be_asked_for(request_text: str, text: str, demand: str) -> None:
    texts = {"s1.txt": text}
    (doubt,) = doubts(request_text, ("notes.txt",), WrittenAnswer(texts, texts, {}))
    assert doubt.demand == demand


def test_a_copy_is_answered_by_asking_for_none() -> None:
    texts = {"s1.txt": ENGLISH}
    (doubt,) = doubts("Summarize the note.", (), WrittenAnswer(texts, texts, {"note.txt": ENGLISH}))
    assert doubt.demand == "Do not repeat note.txt."


@pytest.mark.parametrize(
    ("request_text", "written", "expected"),
    [
        (
            "Answer both mails as a.md and b.md, in at most 10 words each.",
            {"a.md": "We will come on Friday.", "b.md": LONG},
            ["You asked for at most 10 words each; b.md has 96."],
        ),
        ("Summarize both mails in at most 10 words each, then compare them.", {"s1.txt": LONG, "s2.txt": "Both."}, []),
        (
            "Write a plan and save it as plan.md.",
            {"s1.txt": "Plan."},
            ["You asked for plan.md; no step has written it."],
        ),
        ("Write a plan and save it as plan.md.", {"plan.md": "Plan."}, []),
        (
            "Save the list as list.json.",
            {"list.json": "milk, tea"},
            ["list.json is not JSON: Expecting value: line 1 column 1 (char 0)."],
        ),
        ("Save the list as list.json.", {"list.json": '["milk"]'}, []),
        (
            "Save the list as list.csv.",
            {"list.csv": "a,b\n1,2,3\n"},
            ["list.csv has rows with different numbers of columns."],
        ),
        ("Save the list as list.csv.", {"list.csv": 'a,b\n"1,2",3\n'}, []),
        (
            "Translate notes.txt into notes.de.md.",
            {"notes.de.md": ENGLISH},
            ["You asked for German; the answer is in English."],
        ),
        ("Translate notes.txt into notes.de.md.", {"notes.de.md": GERMAN}, []),
        (
            "Put our two lists into all.txt, one thing a line.",
            {"all.txt": "Sure, here is the list:\n\n```\nmilk\ntea\n```\nThese are 2 things."},
            ["all.txt has words to you around its content."],
        ),
        ("Write a guide to shell loops as guide.md.", {"guide.md": "# Loops\n\n```sh\nfor f in *\n```\n"}, []),
        (
            "Make people.json from notes.txt: a list with an object per person.",
            {"people.json": '{"people": [{"name": "Ann"}]}'},
            ["You asked for a list in people.json; it is an object."],
        ),
        (
            "Put notes.txt into people.json, as a list of objects.",
            {"people.json": '{"people": [{"name": "Ann"}]}'},
            ["You asked for a list in people.json; it is an object."],
        ),
        ("Make people.json from notes.txt: a list of objects.", {"people.json": '[{"name": "Ann"}]'}, []),
        ("Make people.json, and a list of names as names.txt.", {"people.json": "{}", "names.txt": "Ann"}, []),
        (
            "Word it for customers as a.md and for dealers as b.md.",
            {"a.md": ENGLISH, "b.md": ENGLISH},
            ["a.md and b.md are the same text."],
        ),
        (
            "Answer both mails as a.md and b.md.",
            {"a.md": ENGLISH, "b.md": ENGLISH.replace("Friday", "Monday")},
            ["a.md and b.md are nearly the same text."],
        ),
        ("Write the same letter as a.md and b.md.", {"a.md": ENGLISH, "b.md": ENGLISH}, []),
        ("Write a.md and b.md about tea.", {"a.md": "Tea is good.", "b.md": "  "}, ["b.md is empty."]),
    ],
)
def test_the_files_that_were_asked_for_are_there_and_are_what_their_names_say(
    request_text: str, written: dict[str, str], expected: list[str]
) -> None:
    found = doubts(request_text, ("notes.txt",), WrittenAnswer(written, written, {}))
    assert [doubt.text for doubt in found] == expected
    assert all(doubt.output in (None, *written) for doubt in found)


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_texts_can_be_compared(request_text: str, text: str) -> None:
    answer = WrittenAnswer({"a.json": text, "b.txt": text}, {"a.json": text, "b.txt": text}, {"c.txt": text})
    assert all(json.dumps(doubt.text) and doubt.text.endswith(".") for doubt in doubts(request_text, (), answer))


@given(st.integers(2, 12), st.integers(2, 12))
def test_a_numbered_list_has_exactly_its_items(wanted: int, made: int) -> None:
    text = "\n".join(f"{number}. Rule {number}" for number in range(1, made + 1))
    assert bool(against(f"Write {wanted} rules for chess.", text)) == (wanted != made)

"""What can be asked for: operations on texts, on their results and on several of them, each in several wordings.

In a wording `{x}` stands for what it is about. The action of a plan's part is the same wording in the imperative.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextOperation:
    """Something to be done with one text."""

    noun: str  # what comes of it, with an article that fits "the": `summary`
    plural: str  # the same of several texts
    wordings: tuple[str, ...]  # Imperatives, such as `summarize {x}`
    questions: tuple[str, ...] = ()  # Questions that ask for it. The action is then the first wording.


def _operations(text: str) -> tuple[TextOperation, ...]:
    """Read operations, apart by an empty line: `noun; plural; wording | wording; question | question`."""
    text_operations = []
    for entry in text.strip().split("\n\n"):
        noun, plural, wordings, *questions = (part.strip() for part in " ".join(entry.split()).split(";"))
        question_forms = tuple(question.strip() for question in questions[0].split("|")) if questions else ()
        text_operations.append(
            TextOperation(noun, plural, tuple(wording.strip() for wording in wordings.split("|")), question_forms)
        )
    return tuple(text_operations)


ON_A_TEXT = _operations(
    """
summary; summaries; summarize {x} | write a summary of {x} | sum up {x} | give me a short summary of {x} | condense
{x} | boil {x} down to a few sentences | write an abstract of {x} | give me the gist of {x} | make a short version
of {x}; what is {x} about? | can you tell me in two sentences what {x} says?

translation; translations; translate {x} into {language} | put {x} into {language} | write {x} in {language} | make
a {language} version of {x}; what would {x} be in {language}?

key points; key points; list the key points of {x} | extract the main points from {x} | give me the most important
points of {x} | pull the essentials out of {x} | note the main ideas of {x}; what are the main points of {x}?

headline; headlines; write a headline for {x} | find a catchy headline for {x} | think of a title for {x} | suggest
a title for {x}; what would be a good title for {x}?

keywords; keywords; list five keywords for {x} | tag {x} with three tags | find keywords for {x} | extract keywords
from {x}

simpler version; simpler versions; rewrite {x} in simple words | simplify {x} | explain {x} simply | make {x} easier
to read | rewrite {x} so that a child understands it; what does {x} mean in plain words?

corrections; corrections; check the spelling of {x} | correct the mistakes in {x} | proofread {x} | fix the grammar
of {x} | look for typing errors in {x}; are there any spelling mistakes in {x}?

names; names; list all names in {x} | extract the names from {x} | find everybody who is mentioned in {x} | pick out
the people in {x}; who is mentioned in {x}?

dates; dates; list the dates in {x} | extract all dates from {x} | find the deadlines in {x} | make a list of all
deadlines in {x}; when does {x} take place? | which deadlines are there in {x}?

prices; prices; extract the price from {x} | find the price in {x} | get the total out of {x} | note the amount in
{x}; what does {x} cost? | how much is {x}?

phone numbers; phone numbers; extract the phone numbers from {x} | list the phone numbers and addresses in {x} |
find the contact details in {x}; which phone number is in {x}?

action items; action items; list the action items in {x} | turn {x} into a to-do list | make a to-do list from {x} |
write down who has to do what according to {x}; what has to be done according to {x}?

quiz questions; quiz questions; write {number} quiz questions about {x} | make a quiz from {x} | turn {x} into exam
questions | write comprehension questions on {x}

glossary; glossaries; write a glossary for {x} | explain the technical terms in {x} | define the terms that {x}
uses; which terms in {x} need an explanation?

flash cards; flash cards; make flash cards from {x} | write flash cards for {x} | turn {x} into flash cards

table; tables; make a table of the figures in {x} | put {x} into a table | turn {x} into a table | arrange the facts
of {x} in a table

outline; outlines; write an outline of {x} | outline {x} | show how {x} is structured | make a table of contents for
{x}

mood; moods; describe the mood of {x} | say whether {x} is positive or negative | judge the tone of {x} | tell me
how {x} sounds; is {x} friendly or not? | is {x} positive?

score; scores; give {x} a score from 1 to {number} | rate {x} from 1 to {number} | score {x} | grade {x} | mark {x};
how good is {x} on a scale from 1 to {number}?

critique; critiques; criticize {x} | write a critique of {x} | review {x} | point out the weaknesses of {x} | give
feedback on {x} | say what could be better in {x}; what is wrong with {x}?

category; categories; sort {x} into a category | classify {x} | say what kind of text {x} is | assign {x} to a
topic; what kind of text is {x}?

reply; replies; write a reply to {x} | answer {x} | draft an answer to {x} | reply politely to {x} | respond to {x};
how should I answer {x}?

formal version; formal versions; rewrite {x} formally | make {x} sound more formal | turn {x} into formal English |
give {x} a more polite tone

friendly version; friendly versions; make {x} sound friendlier | rewrite {x} in a friendly tone | make {x} warmer

post; posts; write a post about {x} | turn {x} into a post for social media | make a tweet out of {x}

bullet points; bullet points; turn {x} into bullet points | rewrite {x} as bullet points | bullet {x}

facts; facts; list the facts in {x} | extract the facts from {x} | collect every fact that {x} states; which facts
are in {x}?

risks; risks; list the risks in {x} | find the risks that {x} mentions | look for problems in {x} | spot the dangers
in {x}; what are the risks in {x}?

arguments; arguments; list the arguments in {x} | find the arguments for and against in {x} | work out the main
claim of {x}; what does {x} argue for?

timeline; timelines; make a timeline of {x} | put the events of {x} in order | list what happens in {x} in order;
what happens in {x}?

description; descriptions; describe {x} in one line | describe {x} | characterize {x} | introduce {x} in two
sentences

numbers; numbers; extract the numbers from {x} | find all figures in {x} | list the quantities in {x}; how many of
them are there according to {x}?

shorter version; shorter versions; shorten {x} | cut {x} to half its length | make {x} shorter | trim {x} to
{number} sentences

longer version; longer versions; expand {x} | make {x} longer | add details to {x}

opinion; opinions; say what you think of {x} | give me your opinion on {x} | comment on {x}; what do you think of
{x}?

explanation; explanations; explain {x} | explain {x} to {audience} | tell {audience} what {x} is about; can you
explain {x} to {audience}?

errors; errors; find the errors in {x} | list the errors that {x} reports | find the mistakes in {x}; what went
wrong according to {x}?

open questions; open questions; list the questions that {x} leaves open | say what is missing in {x} | find gaps in
{x}; what is missing in {x}?

decisions; decisions; list the decisions in {x} | extract the decisions from {x} | note what was decided in {x};
what was decided in {x}?

recommendation; recommendations; write a recommendation based on {x} | recommend something after reading {x}; what
do you recommend after reading {x}?

conclusion; conclusions; draw a conclusion from {x} | write a conclusion for {x} | say what follows from {x}; what
follows from {x}?

dialogue; dialogues; turn {x} into a dialogue | rewrite {x} as a conversation between two people

rhyme; rhymes; turn {x} into a poem | make a rhyme out of {x} | retell {x} in verse

quotation; quotations; pick the best quotation from {x} | find a quotation in {x} | copy the most striking sentence
of {x}

sender; senders; say who wrote {x} | name the author of {x} | tell me who signed {x}; who wrote {x}? | who signed
{x}? | who is the author of {x}?

reason; reasons; find out why {x} was written | say what {x} is for; why was {x} written? | what is the purpose of
{x}?
"""
)

ON_A_RESULT = _operations(
    """
translation; ; translate {x} into {language} | put {x} into {language}

shorter version; ; shorten {x} to {number} sentences | cut {x} down to one paragraph | make {x} shorter

quiz; ; make {number} quiz questions from {x} | write a quiz about {x} | turn {x} into a quiz

answers; ; write the answers to {x} | answer the points in {x}

headline; ; write a headline for {x} | find a title for {x} | think of a headline for {x}

post; ; turn {x} into a blog post | make a tweet from {x} | write a post based on {x}

email; ; write an email to {person} based on {x} | put {x} into an email to {person} | draft a mail from {x}

list; ; sort {x} by importance | put {x} into alphabetical order | number {x}

rewritten text; ; rewrite {x} for {audience} | rewrite {x} in simple words | make {x} sound friendlier

check; ; check {x} for mistakes | proofread {x} | look {x} over for errors

table; ; put {x} into a table | turn {x} into a table

slogan; ; make a slogan from {x} | write a slogan that fits {x}

introduction; ; write an introduction to {x} | add a preface to {x}

criticism; ; criticize {x} | say what is missing in {x} | comment on {x}

poem; ; turn {x} into a poem | write a poem based on {x}

speech; ; write a short speech from {x} | turn {x} into a speech

plan; ; make a plan from {x} | work out a schedule based on {x}

score; ; rate {x} from 1 to {number} | give {x} a mark

tags; ; write three tags for {x} | find keywords for {x}

example; ; give an example for {x} | add an example to {x}
"""
)

JOINT = """
newsletter overview report briefing introduction editorial digest bulletin brochure guide handout letter presentation
comparison recommendation conclusion comment statement story timeline table press-release
""".split()  # what can be written from several results

ON_RESULTS = (
    "write a {joint} from {x}",
    "write a short {joint} based on {x}",
    "make a {joint} out of {x}",
    "turn {x} into a {joint}",
    "combine {x} into one {joint}",
    "put {x} together in a {joint}",
    "compare {x}",
    "compare {x} with each other",
    "merge {x}",
    "rank {x}",
    "sort {x} from best to worst",
    "say what {x} have in common",
    "point out where {x} differ",
    "look for contradictions between {x}",
    "draw a conclusion from {x}",
    "make a table of {x}",
    "add up {x}",
    "work out the average of {x}",
    "choose the best of {x}",
    "recommend one of {x}",
    "group {x} by theme",
    "write one paragraph about {x} as a whole",
    "tell me what {x} show",
    "list the differences between {x}",
    "decide which of {x} is the most convincing",
    "write a {joint} for {audience} from {x}",
    "write {person} a {joint} about {x}",
    "comment on {x} as a whole",
    "calculate the total of {x}",
    "put {x} into one list",
    "tell me where {x} overlap",
    "make one {joint} that covers {x}",
)
ON_RESULTS_UNSAID = (
    ("tell me which one is the {best}", "Say which one is the {best}, from {x}"),
    ("say which of them is the {best}", "Say which is the {best}, from {x}"),
    ("recommend one of them", "Recommend one, from {x}"),
    ("choose a winner", "Choose a winner from {x}"),
    ("compare them", "Compare {x}"),
    ("write a {joint}", "Write a {joint} from {x}"),
    ("give me a {joint}", "Write a {joint} from {x}"),
    ("put everything together in a {joint}", "Combine {x} into a {joint}"),
    ("bring it all together in one {joint}", "Combine {x} into one {joint}"),
    ("tell me what they have in common", "Say what {x} have in common"),
    ("finish with a {joint}", "Write a {joint} from {x}"),
    ("add up the results", "Add up {x}"),
    ("rank them", "Rank {x}"),
    ("write a {joint} from everything", "Write a {joint} from {x}"),
    ("write a {joint} for {audience}", "Write a {joint} for {audience} from {x}"),
    ("tell me whom to invite", "Say whom to invite, from {x}"),
    ("recommend whom to choose", "Recommend whom to choose, from {x}"),
    ("work out the average", "Work out the average of {x}"),
    ("work out the total", "Work out the total of {x}"),
    ("tell me when all of them are possible", "Say when all are possible, from {x}"),
    ("write a comment for {person} about all of them as a whole", "Write a comment for {person} about {x} as a whole"),
    ("say what that means for {place}", "Say what {x} mean for {place}"),
    ("give me your overall impression", "Give an overall impression of {x}"),
    ("then one {joint} for all of them", "Write one {joint} from {x}"),
)  # Wordings that do not name the results, with the actions that do

BEST = (
    "best worst cheapest longest shortest clearest most-recent most-useful strongest weakest earliest largest".split()
)

ON_TWO = (
    ("compare {a} with {b}", "Compare {a} with {b}"),
    ("compare {a} and {b}", "Compare {a} and {b}"),
    ("list the differences between {a} and {b}", "List the differences between {a} and {b}"),
    ("check {a} against {b}", "Check {a} against {b}"),
    ("check whether {a} agrees with {b}", "Check whether {a} agrees with {b}"),
    ("answer {a} with the help of {b}", "Answer {a} with the help of {b}"),
    ("use {b} to answer {a}", "Answer {a} with {b}"),
    ("reply to {a} using the facts in {b}", "Reply to {a} with the facts in {b}"),
    ("merge {a} and {b} into one text", "Merge {a} and {b} into one text"),
    ("fill in {a} with the data from {b}", "Fill in {a} with the data from {b}"),
    ("correct {a} according to {b}", "Correct {a} according to {b}"),
    ("translate {a} with the terms in {b}", "Translate {a} with the terms in {b}"),
    ("write a letter from {a} and {b}", "Write a letter from {a} and {b}"),
    ("draft an application from {a} and {b}", "Draft an application from {a} and {b}"),
    ("grade {a} by the criteria in {b}", "Grade {a} by the criteria in {b}"),
    ("rewrite {a} in the style of {b}", "Rewrite {a} in the style of {b}"),
    ("update {a} with what is new in {b}", "Update {a} with what is new in {b}"),
    ("find out which parts of {a} contradict {b}", "Find what in {a} contradicts {b}"),
    ("explain {a} to somebody who only knows {b}", "Explain {a} to somebody who knows {b}"),
    ("write a summary of {a} that takes {b} into account", "Summarize {a}, taking {b} into account"),
    ("does {a} agree with {b}?", "Say whether {a} agrees with {b}"),
    ("is what {a} describes allowed by {b}?", "Say whether {a} is allowed by {b}"),
    ("do {a} and {b} say the same?", "Say whether {a} and {b} say the same"),
    ("what is the difference between {a} and {b}?", "Explain the difference between {a} and {b}"),
    ("what has changed from {a} to {b}?", "Say what has changed from {a} to {b}"),
    ("which of {a} and {b} is the better one?", "Say which of {a} and {b} is better"),
    ("are all points of {a} covered by {b}?", "Say whether {b} covers all points of {a}"),
    ("can the question in {a} be answered with {b}?", "Answer the question in {a} with {b}"),
    ("how does {a} relate to {b}?", "Explain how {a} relates to {b}"),
)

ON_EACH_WITH_ANOTHER = (
    ("compare each of {a} with {b}", "Compare {a} with {b}"),
    ("check {a} against {b}, one after the other", "Check {a} against {b}"),
    ("hold each of {a} against {b} and list what differs", "List what differs between {a} and {b}"),
    ("correct {a} according to {b}, every file on its own", "Correct {a} according to {b}"),
    ("grade each of {a} by the criteria in {b}", "Grade {a} by the criteria in {b}"),
    ("score {a} one by one with the rules in {b}", "Score {a} with the rules in {b}"),
    ("draft an answer to each of {a} with the help of {b}", "Draft an answer to {a} with the help of {b}"),
    ("for each of {a}, say what contradicts {b}", "Say what in {a} contradicts {b}"),
    ("rewrite every one of {a} in the style of {b}", "Rewrite {a} in the style of {b}"),
    ("translate each of {a} with the terms in {b}", "Translate {a} with the terms in {b}"),
    ("say of each of {a} whether {b} allows it", "Say whether {b} allows {a}"),
    ("update each of {a} with what is new in {b}", "Update {a} with what is new in {b}"),
)  # for each of several files with one more: how people ask for it, and the action

WHICH_OF = (
    (
        "which of {x} mention a {subject}? Read every one of them",
        "Say whether {x} mentions a {subject}",
        "Name the files that mention a {subject}",
    ),
    (
        "find out for each of {x} whether it is about {topic}, and name those that are",
        "Say whether {x} is about {topic}",
        "Name the files that are about {topic}",
    ),
    (
        "go through {x} one by one and tell me where a {subject} is mentioned",
        "Say whether {x} mentions a {subject}",
        "Name the files that mention a {subject}",
    ),
    (
        "check each of {x} for personal data and list the ones that have any",
        "Say whether {x} has personal data",
        "List the files that have personal data",
    ),
    (
        "sort {x} into those suited to {audience} and the others, after a look at each",
        "Say whether {x} is suited to {audience}",
        "List the files suited to {audience} and the others",
    ),
    (
        "look at each of {x}: is it urgent? In the end I want the names of the urgent ones",
        "Say whether {x} is urgent",
        "Name the urgent files",
    ),
)  # which of several files something is true of: how people ask, the action for each, and that for all answers

TEXTS = (
    "a summary in {number} sentences",
    "a short version for {audience}",
    "a friendly letter to {audience}",
    "the key points as bullets",
    "a translation into {language}",
    "all dates and what happens then",
    "questions and answers for {audience}",
    "a title and a teaser",
    "a checklist for the {subject}",
    "what it says about {topic}",
    "a press release, short and factual",
    "an email to {person}",
    "a table of the numbers",
    "the arguments against it",
    "an explanation without any technical words",
)  # texts that people want to be made of a file

NAMED_TEXTS = (
    ("make these files from {x}: {items}", "{file} with {text}", ", "),
    ("{x} has to go out in several forms. {items}", "{file}: {text}", ". "),
    ("from {x} I need {items}", "{file} ({text})", " and "),
    ("write {items}, all from {x}", "{text} as {file}", ", "),
    ("use {x} for the following: {items}", "{file} - {text}", "; "),
    ("turn {x} into {items}", "{text} in {file}", " and "),
    ("read {x} and write {items}", "{file}, {text}", "; "),
)  # how people ask for several texts with names: the request, one text of it, and what stands between them

OVER_ALL = (
    ("which of {x} is the {best}?", "Say which of {x} is the {best}"),
    ("which of {x} mentions a {subject}?", "Say which of {x} mentions a {subject}"),
    ("what do {x} have in common?", "Say what {x} have in common"),
    ("compare {x}", "Compare {x}"),
    ("compare {x} with each other", "Compare {x} with each other"),
    ("merge {x} into one text", "Merge {x} into one text"),
    ("find contradictions between {x}", "Find contradictions between {x}"),
    ("do {x} agree about the {subject}?", "Say whether {x} agree about the {subject}"),
    ("write one {joint} from {x}", "Write one {joint} from {x}"),
    ("say which of {x} fits {place} best", "Say which of {x} fits {place} best"),
    ("who of all the people in {x} lives in {place}?", "Say who in {x} lives in {place}"),
    ("rank {x} by length", "Rank {x} by length"),
    ("write a {joint} about all of {x} together", "Write a {joint} about {x} together"),
    ("make one {joint} out of {x}", "Make one {joint} out of {x}"),
    ("say in one paragraph what {x} are about", "Say in one paragraph what {x} are about"),
    ("sort {x} by date", "Sort {x} by date"),
    ("count the words in {x} together", "Count the words in {x} together"),
    ("tell me which of {x} I should read first", "Say which of {x} should be read first"),
    ("work out from {x} who has to do the most", "Say who has to do the most according to {x}"),
    ("list what {x} disagree about", "List what {x} disagree about"),
)  # what is asked of several texts at once, with the action

LISTED = (
    "verbs",
    "adjectives",
    "nouns",
    "names",
    "dates",
    "places",
    "numbers",
    "companies",
    "tools",
    "questions",
    "prices",
    "animals",
    "colours",
    "countries",
    "ingredients",
    "abbreviations",
)

FIRST_LIST = ("list all the {p} in {x}", "make a list of the {p} in {x}", "collect the {p} from {x}")
FURTHER_LISTS = (
    "another one of all the {p}",
    "a second list with the {p}",
    "one of the {p}",
    "a separate list of the {p}",
    "another list with all {p}",
)

MADE_OF_A_RESULT = (
    "a headline|three tags|a slogan|a quiz|an introduction|a blog post|a poem|five questions|a table|a tweet|a title|"
    "a short speech|a list of keywords|two jokes|an invitation|a caption|a checklist|an advertisement|a riddle"
).split("|")  # what can be made of a result, without a verb

EACH_ITEM = (
    ("explain each {s} simply", "Explain the {s} simply", "explanations"),
    ("explain every {s} to {audience}", "Explain the {s} to {audience}", "explanations"),
    ("describe each {s} in one sentence", "Describe the {s} in one sentence", "descriptions"),
    ("describe every one of the {p}", "Describe the {s}", "descriptions"),
    ("translate each {s} into {language}", "Translate the {s} into {language}", "translations"),
    ("rate each {s} from 1 to {number}", "Rate the {s} from 1 to {number}", "ratings"),
    ("write a paragraph about each {s}", "Write a paragraph about the {s}", "paragraphs"),
    ("give an example for each {s}", "Give an example for the {s}", "examples"),
    ("say for every {s} why it matters", "Say why the {s} matters", "reasons"),
    ("tell me something interesting about each of them", "Say something interesting about the {s}", "facts"),
    ("comment on each of the {p}", "Comment on the {s}", "comments"),
    ("find a better word for each {s}", "Find a better word for the {s}", "words"),
    ("work on the {p} one by one: say what each one means", "Say what the {s} means", "meanings"),
    ("write two questions about each {s}", "Write two questions about the {s}", "questions"),
)  # what can be asked for each item of a list: the clause, the action, and what comes of it

EACH_OF = (
    *("{x}",) * 9,
    "go through {x} and {op}",
    "take {x} and {op}",
    "for {x}, {op}",
    "look at {x} and {op}",
    "read {x} and {op}",
)  # Ways to ask for the same of each of several texts: `{op}` is said of what `ONE_BY_ONE` names
# Ways to ask for one thing of several texts at once: `{op}` is said of them.
OVER = (*("{x}",) * 4, "read {x} and {op}", "go through {x} and {op}", "take {x} and {op}", "look at {x} and {op}")
ONE_BY_ONE = ("each of them", "each one", "each", "every one of them")
OF_ONE = (*("{x}",) * 10, "read {x} and {op}", "open {x} and {op}", "look at {x} and {op}", "take {x} and {op}")

REST = (
    "look into {x} and {op}",
    "read {x}, then {op}",
    "find out from {x} which files matter and {op}",
    "check {x} for the names of files and {op}",
    "open {x} and {op}",
)

REPLANS = (
    ("look into {x} for the names of files, and {do} the files that it names", "Find the file names in {x}"),
    ("read {x} and carry out what it says", "Read what {x} says has to be done"),
    ("do what {x} asks for", "Find out what {x} asks for"),
    ("work through the tasks in {x}", "List the tasks in {x}"),
    ("follow the instructions in {x}", "Read the instructions in {x}"),
    ("find out from {x} which files matter and {do} those", "Find out from {x} which files matter"),
    ("open {x}, see what has to be done, and do it", "Find out what has to be done according to {x}"),
    ("{x} says which texts to look at; {do} them", "Find out from {x} which texts to look at"),
    ("decide from {x} what to do next and do it", "Decide from {x} what to do next"),
    ("{do} the files that are listed in {x}", "List the files that {x} names"),
    ("check in {x} which of the files are wanted, then {do} them", "Find out from {x} which files are wanted"),
    ("carry out the plan in {x} step by step", "Read the plan in {x}"),
    ("read {x} and do everything that it asks for", "Find out what {x} asks for"),
    ("read {x} and follow it", "Read what {x} says has to be done"),
    ("{x} tells you what to do, so do it", "Find out what {x} says has to be done"),
    ("see what {x} wants and take care of it", "Find out what {x} wants"),
    ("get your orders from {x} and carry them out", "Read the orders in {x}"),
    ("take the file names out of {x}, then {do} each of these files", "List the file names in {x}"),
    ("{do} whichever files {x} mentions", "List the files that {x} mentions"),
    ("find the names of files in {x} and {do} these files", "List the names of files in {x}"),
    ("complete the list of tasks in {x}", "List the tasks in {x}"),
    ("do the steps that {x} describes", "List the steps that {x} describes"),
)

SAVE = (
    " and save it as {file}",
    " and save the result as {file}",
    " and put it into {file}",
    " and write it to {file}",
    " and store the result in {file}",
    ", saved as {file}",
    " in {file}",
    ". Save it as {file}",
    ". Put the result into {file}",
    ". The result should be in {file}",
    ". Call the file {file}",
    " and name the file {file}",
)

SAVE_ANSWER = (
    " Put the answer into {file}",
    " Save the answer as {file}",
    " Write it to {file}",
    " Put them into {file}",
    " The answer should be in {file}",
)  # the same behind a question

POLITE = (
    "{I}.",
    "{I}.",
    "{I}.",
    "{I}",
    "Please {i}.",
    "please {i}",
    "{I}, please.",
    "Could you {i}?",
    "Can you {i}?",
    "Can you please {i}?",
    "Would you {i}?",
    "I need you to {i}.",
    "I would like you to {i}.",
    "I want you to {i}.",
    "Your task: {i}.",
    "Kindly {i}.",
    "Hi! Please {i}.",
    "Hello, could you {i}?",
    "Hey, {i}!",
    "You should {i}.",
    "Help me: {i}.",
    "It would be great if you could {i}.",
    "Let's {i}.",
)
BEFORE = (
    "I have to hand this in tomorrow.",
    "We meet on {weekday}.",
    "My boss is waiting.",
    "I have not had time to read everything.",
    "I am preparing a talk.",
    "{person} asked me for it.",
    "Here is what I need.",
    "There is a folder full of texts here.",
    "I am new to this.",
    "This is for {person}.",
)
AFTER = (
    "Thanks!",
    "Thank you.",
    "It is urgent.",
    "Keep it short.",
    "Take your time.",
    "Use plain English.",
    "No jargon.",
)

NEXT = (
    "{first}, then {second}",
    "{first} and then {second}",
    "{first}, and after that {second}",
    "{first}. Then {second}",
    "{first}. After that, {second}",
    "{first}; {second}",
    "first {first}, then {second}",
    "first {first}. Next, {second}",
    "{first}. When that is done, {second}",
    "{first}. Once you have that, {second}",
    "{first}, and finally {second}",
    "{first} and {second}",
    "{first}, before you {second}",
)
NEXT_OF_THREE = (
    "{a}, {b} and {c}",
    "{a}, {b}, and {c}",
    "{a}, {b}, and then {c}",
    "{a}, {b} and finally {c}",
    "{a}, then {b}, then {c}",
    "first {a}, then {b}, and finally {c}",
    "{a}; {b}; {c}",
    "{a}. {b}. {c}",
    "{a}. Then {b} and {c}",
    "{a} and {b}, then {c}",
)  # Ways to put three clauses together
AND = ("{first} and {second}", "{first}, and {second}", "{first} and also {second}")
BESIDE = (
    "{first} and, separately, {second}",
    "{first}; independently of that, {second}",
    "{first}. Apart from that, {second}",
    "two things: {first}, and {second}",
    "{first}, and {second}",
    "{first}. Also {second}",
    "{first} as well as {second}",
    "{first}. In addition, {second}",
)

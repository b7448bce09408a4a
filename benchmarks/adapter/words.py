"""The vocabulary of the generated requests: what files are about and called, who is in them, and what is written.

Every list is split by a hash of its words: of ten words about one is held out, so that requests can be generated whose
words an adapter was never trained on.
"""

import random
import zlib
from dataclasses import dataclass


def _entries(text: str) -> list[str]:
    """Return what stands between bars; a line break counts as a space."""
    return [entry.strip() for entry in " ".join(text.split()).split("|")]


SUBJECTS = """
apple harbour garden bakery council river bridge castle forest mountain valley island lighthouse museum library
school hospital station airport factory farm orchard vineyard brewery quarry mine market square theatre cinema
stadium gym kitchen cellar attic balcony workshop studio office warehouse garage stable kennel aviary pond lake
canal dam reservoir glacier volcano desert meadow swamp reef beach cliff cave tunnel railway tram ferry bicycle
motorbike tractor lorry submarine balloon rocket satellite telescope microscope compass camera radio piano violin
trumpet guitar drum flute choir orchestra ballet opera novel poem diary letter recipe menu invoice contract budget
tax pension mortgage loan insurance lottery auction bazaar festival wedding funeral birthday carnival parade
marathon regatta tournament chess poker tennis football hockey cricket rugby golf swimming sailing climbing skiing
hiking camping fishing hunting archery falcon eagle owl sparrow robin swan goose duck hen turkey peacock parrot
penguin ostrich whale dolphin shark salmon trout herring lobster crab oyster octopus turtle lizard snake frog toad
newt beetle butterfly moth bee wasp ant spider scorpion horse donkey mule cow bull sheep goat pig rabbit hare
squirrel badger hedgehog fox wolf bear lynx lion tiger leopard elephant giraffe zebra camel llama kangaroo koala
panda monkey gorilla rose tulip lily daisy orchid violet sunflower lavender fern moss ivy oak elm birch maple pine
cedar willow chestnut walnut almond cherry plum pear peach apricot fig grape lemon orange melon mango banana
pineapple coconut raspberry blueberry tomato cucumber pumpkin carrot onion garlic potato cabbage spinach lettuce
pepper mushroom rice wheat barley oats maize lentil bean pea honey butter cheese yoghurt cream bread biscuit cake
pie pudding soup stew salad sauce pickle mustard vinegar coffee tea cocoa juice cider beer wine whisky salt sugar
cinnamon ginger saffron vanilla copper iron silver gold tin zinc lead mercury granite marble slate clay sand chalk
coal amber pearl diamond emerald ruby cotton linen wool silk leather velvet button zipper needle thread carpet
curtain pillow blanket mattress sofa chair table cupboard mirror lamp candle lantern chimney stove oven kettle
teapot spoon fork knife plate bowl bottle barrel basket ladder hammer saw drill chisel screwdriver shovel rake
wheelbarrow fence gate hedge greenhouse beehive windmill turbine battery engine pump boiler radiator elevator
escalator printer scanner keyboard monitor server router firewall database compiler spreadsheet calendar password
backup website newsletter podcast interview survey census election parliament senate treaty embassy passport visa
customs border police prison court jury verdict appeal patent trademark merger startup bank currency inflation
export import strike union salary vacation internship apprenticeship scholarship exam lecture seminar thesis
laboratory experiment vaccine antibiotic allergy asthma diabetes migraine surgery nurse dentist pharmacy ambulance
earthquake flood drought storm hurricane avalanche eclipse comet planet moon mars saturn galaxy gravity magnet laser
prism atom molecule enzyme protein cell fossil dinosaur mammoth pyramid temple cathedral mosque monastery palace
fortress aqueduct mosaic fresco sculpture tapestry manuscript alphabet grammar proverb riddle legend fable saga
ballad sonnet comedy tragedy puppet mask costume jewel crown sword shield armour
""".split()  # Things that a file can be about, and after which it can be called

KINDS = """
report:reports letter:letters memo:memos offer:offers invoice:invoices review:reviews article:articles essay:essays
story:stories poem:poems chapter:chapters lecture:lectures interview:interviews survey:surveys complaint:complaints
proposal:proposals contract:contracts lease:leases quote:quotes receipt:receipts order:orders ticket:tickets
log:logs protocol:protocols transcript:transcripts speech:speeches script:scripts recipe:recipes menu:menus
brochure:brochures advert:adverts leaflet:leaflets manual:manuals guide:guides tutorial:tutorials policy:policies
rule:rules plan:plans budget:budgets forecast:forecasts statement:statements audit:audits application:applications
cv:cvs resume:resumes reference:references profile:profiles biography:biographies obituary:obituaries diary:diaries
note:notes draft:drafts outline:outlines abstract:abstracts paper:papers thesis:theses exam:exams answer:answers
question:questions quiz:quizzes homework:homeworks lesson:lessons mail:mails message:messages chat:chats post:posts
comment:comments feedback:feedbacks bug:bugs incident:incidents changelog:changelogs spec:specs
requirement:requirements usecase:usecases test:tests measurement:measurements sample:samples finding:findings
diagnosis:diagnoses prescription:prescriptions itinerary:itineraries booking:bookings timetable:timetables
schedule:schedules agenda:agendas newsletter:newsletters bulletin:bulletins announcement:announcements
petition:petitions testimony:testimonies verdict:verdicts ruling:rulings
""".split()  # what files are, in the singular and the plural, as in `offer1.txt`, `offer2.txt`

PEOPLE = """
Adams Baker Carter Dixon Evans Fisher Grant Harris Irving Jensen Keller Lopez Mason Novak Olsen Parker Quinn Rossi
Singh Turner Ueda Vargas Walker Xu Young Zimmer Alvarez Bennett Castro Dubois Eriksen Fontaine Garcia Hoffmann
Ivanova Jones Kowalski Lindgren Moreau Nielsen Okafor Patel Ramirez Schmidt Tanaka Ullman Virtanen Weber Yilmaz
Zhang anna ben clara david emma felix greta hugo ida jack karla leo maria nora oskar paula rosa sam tina uwe victor
wanda alice bob carol dan erik fiona george hannah ivan julia kevin laura mike nina otto peter ruth simon theo
ursula vera will zoe amir bella
""".split()

PLACES = """
paris rome oslo vienna lisbon madrid dublin berlin prague warsaw athens cairo tokyo delhi lima quito bergen turin
porto leeds york bristol hamburg munich zurich geneva lyon nice seville valencia naples venice florence krakow riga
tallinn boston denver austin seattle toronto montreal sydney perth auckland nairobi lagos accra osaka kyoto seoul
hanoi north south east west
""".split()

MONTHS = "january february march april may june july august september october november december".split()
SHORT_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
ORDINALS = "first second third fourth fifth sixth seventh".split()
NUMBERS = "zero one two three four five six seven eight nine ten".split()

LANGUAGES = """
French German Spanish Italian Portuguese Dutch Swedish Danish Norwegian Finnish Polish Czech Greek Turkish Russian
Ukrainian Arabic Hebrew Hindi Japanese Korean Chinese English Latin
""".split()

TOPICS = _entries(
    """
the sea in spring|a rainy afternoon|the first day at school|an old clock|the night train|growing tomatoes|good
manners|saving energy at home|learning to cook|the history of tea|black holes|compound interest|the water
cycle|photosynthesis|how vaccines work|the tides|inflation|plate tectonics|the French Revolution|the Silk
Road|Roman roads|binary numbers|recursion|electric cars|solar panels|wind power|rainbows|earthquakes|volcanoes|the
immune system|the stock market|time zones|daylight saving|leap years|fractions|the alphabet|sign language|a lost
key|two neighbours and a fence|a robot that paints|a dragon with a cold|a letter that arrives too late|the last
bus home|a walk in the snow|moving house|changing a bicycle tyre|keeping bees|baking bread|working from
home|remote teams|time management|public speaking|small talk|job interviews|tipping in restaurants|noise at
night|plastic in the ocean|urban gardens|night shifts
"""
)

CREATIVE = _entries(
    """
poem|short story|limerick|haiku|song|fairy tale|dialogue|speech|blog post|love letter|joke|riddle|slogan|product
description|toast|invitation|postcard|essay|bedtime story|news report|monologue|sketch|advertisement|press
release|sonnet
"""
)

AUDIENCES = _entries(
    """
a child|a ten-year-old|a beginner|my grandmother|a new colleague|a tourist|a student|a class of teenagers|somebody
in a hurry|a sceptic|my boss|a lawyer|an engineer
"""
)

OCCASIONS = _entries(
    """
a birthday party|a team outing|a rainy Sunday|a school project|a small garden|a first date|a company anniversary|a
long train ride|a housewarming|a charity run|a picnic|a science fair|a wedding speech|a blog about cooking|a
family holiday|a book club|a village fete|a workshop on safety|a farewell party|a newsletter
"""
)

ITEMS = _entries(
    """
city:cities:travel tip|name:names:greeting|product:products:advertisement|country:countries:short
fact|term:terms:definition|ingredient:ingredients:substitute|risk:risks:countermeasure|task:tasks:time
estimate|question:questions:answer|character:characters:portrait|animal:animals:description|plant:plants:care
instruction|book:books:recommendation|customer:customers:thank-you
note|supplier:suppliers:reminder|error:errors:likely cause|requirement:requirements:test
case|claim:claims:counterargument|word:words:example
sentence|topic:topics:explanation|person:people:biography|guest:guests:place
card|event:events:announcement|dish:dishes:recipe|complaint:complaints:reply|idea:ideas:slogan|goal:goals:first
step|chapter heading:chapter headings:teaser|exercise:exercises:solution|tool:tools:safety
hint|medicine:medicines:warning|hotel:hotels:short review|song:songs:dedication|job:jobs:interview
question|law:laws:example|star:stars:legend|invention:inventions:history|artist:artists:caption|river:rivers:quiz
question|planet:planets:poem|chapter:chapters:summary|paragraph:paragraphs:heading|verse:verses:paraphrase|
scene:scenes:stage direction|month:months:forecast|region:regions:slogan|team:teams:motto|player:players:nickname|
student:students:report|teacher:teachers:thank-you card|device:devices:manual|symptom:symptoms:possible cause|
rule:rules:reason|quotation:quotations:comment|abbreviation:abbreviations:long form|street:streets:story|
painting:paintings:title|museum:museums:invitation|train:trains:announcement|bug:bugs:fix|feature:features:user
story|decision:decisions:justification|argument:arguments:reply|statement:statements:check|paper:papers:one-line
summary|vegetable:vegetables:recipe|room:rooms:sign|donor:donors:letter|member:members:reminder
"""
)  # what can be listed: one of them, several, and what is written for each

CODE = _entries(
    """
is_prime:checks whether a number is prime|reverse_words:reverses the words of a sentence|count_vowels:counts the
vowels of a text|gcd:returns the greatest common divisor of two numbers|flatten:flattens a nested
list|leap_year:says whether a year is a leap year|roman:converts a number to Roman numerals|anagrams:finds all
anagrams in a list of words|factorial:computes the factorial of a number|fibonacci:returns the first n Fibonacci
numbers|merge_sorted:merges two sorted lists|word_count:counts how often each word occurs|celsius:converts
Fahrenheit to Celsius|digits:returns the sum of the digits of a number|unique:removes duplicates from a list and
keeps the order|caesar:encrypts a text with the Caesar cipher|binary_search:searches a sorted
list|parse_date:reads a date such as 2024-03-01|mean:computes the mean of a list of numbers|variance:computes the
variance of some numbers|transpose:transposes a matrix|chunks:splits a list into chunks of a given
size|rotate:rotates a list by k places|slugify:turns a title into a slug|validate_email:checks an email
address|dice:rolls some dice and returns the sum|bmi:computes the body mass index|interest:computes compound
interest|shuffle:shuffles a deck of cards|bracket:checks whether brackets are balanced|histogram:prints a
histogram of some numbers|initials:returns the initials of a name|mask_card:hides all but the last four digits of
a card number|tic_tac_toe:finds the winner of a game of tic-tac-toe|password:generates a random
password|pascal:returns a row of Pascal's triangle|collatz:returns the Collatz sequence of a
number|hamming:computes the Hamming distance of two strings|queue:implements a queue with two
stacks|cache:implements a cache that forgets the oldest entry|timer:measures how long a function
takes|csv_sum:adds up a column of a CSV file|tree_depth:computes the depth of a binary tree|topological:sorts
tasks by their dependencies|knapsack:solves the knapsack problem|edit_distance:computes the edit distance of two
words|unit_convert:converts kilometres to miles|moving_average:computes a moving average|intersect:returns what
two lists have in common|title_case:capitalizes every word
"""
)  # the name of a function and what it does

STRUCTURES = _entries(
    """
heap:a binary heap|linked_list:a linked list|deque:a double-ended queue|trie:a trie|graph:a graph with weighted
edges|matrix:a matrix class|account:a bank account|calculator:a calculator|hangman:a game of hangman|snake:the game
of snake|todo:a to-do list for the command line|phonebook:a phone book|quiz_game:a quiz game|parser:a parser for
arithmetic|logger:a simple logger|ring_buffer:a ring buffer|polynomial:a polynomial|fraction:a class for
fractions|tree:a binary search tree|sudoku:a Sudoku solver|tokenizer:a tokenizer|inventory:an inventory of
goods|thermostat:a simulation of a thermostat|elevator:an elevator|sorting:a sorting algorithm|bubble:bubble
sort|quicksort:quicksort|hash_table:a hash table|set_type:a set with union and intersection|vending:a vending
machine
"""
)  # Python programs and classes, with the names of their files

SHELL = _entries(
    """
backup:backs up my home folder to a USB stick|resize:resizes all pictures in a folder|count_lines:counts the lines
of all source files|clean_tmp:deletes files in the temporary folder that are older than a week|disk_alert:warns
when the disk is almost full|rename_photos:renames photos by the date they were taken|zip_logs:compresses
yesterday's log files|watch_url:checks every minute whether a website answers|list_ports:lists the open
ports|convert_audio:converts WAV files to MP3|sync_notes:copies my notes to another machine|find_dupes:finds
duplicate files|kill_idle:ends processes that have been idle for an hour|git_stats:counts the commits of each
author|rotate_keys:replaces old SSH keys|make_dirs:creates a folder for each month|strip_spaces:removes spaces
from file names|mount_disk:mounts an external disk|daily_report:mails the load of the machine every
morning|check_dns:looks up a list of host names|archive_old:moves files from last year into an
archive|free_memory:prints how much memory is free|split_csv:splits a large CSV file into parts|count_words:counts
the words of all text files|update_all:installs all updates
"""
)  # the name of a shell script and what it does

COMMANDS = _entries(
    """
finds all files that changed today|shows which process uses port 8080|prints the last ten lines of a file|counts
the files in a folder|searches for a word in all files below a folder|shows how long the machine has been
running|lists users who are logged in|copies a folder to another machine|replaces tabs with spaces|sorts a file by
its second column|shows the largest folders|unpacks a tar archive|changes the owner of a file|compares two
folders|shows the free space on every disk|stops a service|prints the environment|downloads a page|makes a file
executable|shows the history of a file in git
"""
)  # what a shell command does

FACTS = _entries(
    """
What is the capital of {place}?|How far is it from {place} to {place2}?|Who invented the {subject}?|How long does
a {subject} live?|What does the word {subject} mean?|When was the first {subject} built?|Why is a {subject} so
expensive?|What is the difference between a {subject} and a {subject2}?|How many calories does a {subject}
have?|Is a {subject} dangerous?|How do I clean a {subject}?|What is a {subject} good for?|Which is heavier, a
{subject} or a {subject2}?|What should I know before I buy a {subject}?|Where does the {subject} come from?|What
is {topic} about?|Why is {topic} important?|What do people in {place} eat for breakfast?|Which animal is like a
{subject}?|How do you say {subject} in {language}?|What time is it in {place} when it is noon in {place2}?|Can you
recommend a book about {topic}?|What are three facts about {topic}?|Is it true that a {subject} can float?|How many
inhabitants does {place} have?|Which river flows through {place}?|How heavy is a {subject}?|Who was the first to own
a {subject}?|What rhymes with {subject}?|Why do people like the {subject}?|How is a {subject} made?|What is the
opposite of {subject}?|When is the best time to visit {place}?|How old can a {subject} get?|What colour is a
{subject}?|Explain {topic}.|Tell me about {place}.|Who wrote a famous book about the {subject}?|What does it cost to
travel from {place} to {place2}?|Name five things that one needs for a {subject}.|Which language do they speak in
{place}?|What is better, a {subject} or a {subject2}?|How can I learn more about {topic}?|Is it cold in {place} in
{month}?|Describe a {subject} in one sentence.|Give me a synonym for {subject}.
"""
)  # Questions without files

SENTENCES = _entries(
    """
The {subject} was closed because nobody had paid the {subject2}.|Owing to the weather, the {subject} will open one
hour later than planned.|We regret to inform you that your {subject} has been lost.|In my opinion the {subject} is
far too small for so many people.|{person} said that the {subject} would be ready on {weekday}, but it was
not.|Please find attached the {subject} for {month}.|Their going to the {subject} with there {subject2}
tomorow.|It was a dark night, and the {subject} stood alone on the hill.|The committee has decided to postpone the
{subject} until {month}.|I like the {subject}, the {subject2} and the old houses in {place}.|Nobody in {place} had
ever seen such a {subject}.|Our new {subject} is lighter, faster and cheaper than any other.|Due to the fact that
the {subject} is broken, no {subject2} can be delivered.|{person} lives in {place} and sells a {subject} every
{weekday}.|he dont know where the {subject} are|The train to {place} leaves at nine, and the {subject} is included
in the price.
"""
)  # texts that are given in a request

SYLLABLES = (
    "ba be bi bo bra cal cor da del dor fa fen fir ga gel gor ha hil jo ka kel kor la len lo ma mel mir na nel no "
)
SYLLABLES += "or pa pel pro qua ra rel ron sa sel sko ta tel tor u va vel vor wa wex ya zel zo zu"
_ENDS = ("", "", "x", "n", "s", "th", "ck", "m", "l")

EXTENSIONS = ("txt", "txt", "txt", "txt", "md", "md", "csv", "log", "json", "html", "rst", "tex", "xml", "yaml")
NAMES_OF_EXTENSIONS = {
    "txt": ("text files", "text file"),
    "md": ("Markdown files", "Markdown file"),
    "csv": ("CSV files", "CSV file"),
    "log": ("log files", "log file"),
    "json": ("JSON files", "JSON file"),
    "html": ("HTML files", "HTML file"),
}
OTHERS = (
    "logo.svg",
    "photo.jpg",
    "style.css",
    "Makefile",
    "LICENSE",
    "data.bin",
    "setup.cfg",
    "archive.zip",
    "map.png",
)  # files that no request is about


def held_out(word: str) -> bool:
    """Return whether a word is kept for evaluation: about every tenth, by a hash that never changes."""
    return zlib.crc32(word.encode()) % 10 == 0


@dataclass
class WordSampler:
    """Draws words at random: only those for training, or, for evaluation, with all those that are held out first."""

    random: random.Random
    unseen: bool = False  # whether to draw held-out words from the lists that have any

    def pick(self, words: list[str]) -> str:
        """Return one of the words."""
        return self.sample(words, 1)[0]

    def sample(self, words: list[str], count: int) -> list[str]:
        """Return `count` different words, or all if there are fewer."""
        mine = [word for word in words if held_out(word) == self.unseen]
        if len(mine) < count:
            mine = words
        return self.random.sample(mine, min(count, len(mine)))

    def made_up(self) -> str:
        """Return a word that does not exist."""
        syllables = SYLLABLES.split()
        return "".join(self.random.choices(syllables, k=self.random.choice((2, 2, 3)))) + self.random.choice(_ENDS)

    def stem(self) -> str:
        """Return what a file can be called after: a thing, or now and then a person, a place or a made-up word."""
        draw = self.random.random()
        if draw < 0.6:
            return self.pick(SUBJECTS)
        if draw < 0.7:
            return self.pick(PLACES)
        if draw < 0.8:
            return self.pick(PEOPLE).lower()
        return self.made_up()

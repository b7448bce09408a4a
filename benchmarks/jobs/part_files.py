"""The files that come with the jobs with independent parts."""


def folder(text: str) -> dict[str, str]:
    """Split a text into files: a line `--- NAME` starts each."""
    files: dict[str, str] = {}
    for part in text.lstrip().removeprefix("--- ").split("\n--- "):
        name, body = part.split("\n", 1)
        files[name] = body.rstrip("\n") + "\n"
    return files


MINUTES = folder("""
--- kitchen.txt
Meeting 4 March, kitchen group. Present: Ada, Tom, Wiebke.
The new dishwasher arrives on 12 March; Tom lets the fitters in.
We buy forty plates from the canteen that is closing, for 60 euros in all.
The crack in the blue kettle makes it unsafe, so it goes to the tip.
Still open: who pays for the extractor fan? Ada will not do it alone.
--- garden.txt
Garden group, 6 March. Present: Noor, Sam, Ines.
The apple tree by the gate was pruned. The pond is to be fenced before Easter because of the
kindergarten next door. Sam ordered eight bags of compost, which come on Friday.
The hedge on the north side has box moth; Noor sprays it on Saturday.
Not decided yet: whether the bees of Mr Okafor may stay behind the shed.
--- money.txt
Treasurer's round, 9 March. Present: Ines, Tom.
There are 3,412 euros in the account. Membership stays at 25 euros a year.
The printer contract was cancelled, which saves 180 euros a year.
The summer party may cost up to 700 euros.
Open question: do we need insurance for the trailer? Nobody knew.
""")

LIBRARY_NOTICE = folder("""
--- notice.txt
The library will be closed on 14 May because the heating is being repaired.
Books that are due on that day may be returned until 17 May without a fee.
The reading room on the second floor stays open from 9:00 to 13:00.
""")

HOUSE_NOTES = folder("""
--- note01.txt
Mrs Dahl on the third floor asks for a second key to the bicycle cellar.
Her son now cycles to school.
--- note02.txt
The boiler was serviced on Tuesday. The technician replaced a valve.
Next visit in a year.
--- note03.txt
Someone leaves prams in front of the lift again. Please put up a sign.
--- note04.txt
Window cleaning: Fischer & Co. want 12 % more from July.
--- note05.txt
The tenant of flat 7 has had no hot water since Sunday. I went down to look: the boiler shows
error E4 and does not start.
--- note06.txt
Lamp in the stairwell, second floor, flickers. Bulb is in the drawer.
--- note07.txt
Mr Petrov complains about the piano upstairs after 10 pm.
--- note08.txt
Insurance wants a photo of every fire extinguisher. There are six.
--- note09.txt
Quote for a new roof gutter: 2,300 euros. The second quote is missing.
--- note10.txt
The cellar smells of oil. Plumber says it may be the boiler's feed line and
that it is not urgent.
--- note11.txt
Parcel for flat 2 lies in the office since Monday.
--- note12.txt
The gardener comes on the 3rd and needs the water tap in the yard turned on.
""")

COMMENTS = folder("""
--- comments.txt
1. The parcel came nine days late.
2. You charged my card twice for one order!
3. I love the new colours, thank you.
4. The courier left the box in the rain.
5. My invoice shows the wrong amount.
6. Best shop I know, keep it up.
7. Where is my package? It was to arrive on Monday.
8. Please refund the 20 euros that you took too much.
9. Such a friendly reply from your team, great!
10. Delivery went to my old address again.
11. Why is there a fee of 3 euros on my bill?
12. Super quality, I am delighted.
13. The driver never rang the bell and took the parcel back.
14. My coupon was not deducted from the price on the invoice.
15. Wonderful, I'll recommend you to all my friends.
16. Tracking says delivered, but nothing came.
17. I paid by transfer and still got a payment reminder.
18. Everything perfect, five stars!
19. Shipping took three weeks.
20. You debited the yearly fee although I cancelled, I want the money back.
""")

KETTLE = folder("""
--- recall.txt
We are recalling the kettle Brisa 2, sold from January to June, because the handle can come
loose when the kettle is full of boiling water. Three people were burned. Serial numbers start
with BR2. Stop using it. Send it back free of charge with the code SAFE24; you get 39 euros back.
The cause is a rivet whose alloy was too soft. Since July we have used a steel rivet.
""")

OFFERS = folder("""
--- hartmann.txt
Offer Hartmann Office Ltd.
Thank you for asking about ten desks. We can offer the model Linea at 289 euros each,
2,890 euros for all ten. They leave our works after your order and are with you in 3 weeks.
We give five years of warranty on frame and motor. Payment within 30 days.
--- moebelwerk.txt
Moebelwerk Sued, offer 2231
10 x desk "Steh auf": total 2,450 euros, assembly not included.
Delivery takes 8 weeks at present as the motors are short.
Warranty: 2 years as the law wants it.
--- nordic.txt
Nordic Desk AB is pleased to offer
ten sit-stand desks in birch, price 3,200 euros with assembly. We have them in stock and deliver
in 5 days. Our desks come with a ten-year warranty. The offer holds until the end of the month.
""")

CONTRACTS = folder("""
--- cleaning.txt
Service contract between Hofgarten e.V. and Blank Cleaning.
1. Blank cleans the stairs weekly. 2. The price is 140 euros a month.
3. The contract runs for one year and is renewed for another year unless it is cancelled.
4. It can be cancelled with a notice of 3 months to the end of the year.
--- internet.txt
Fibre Plus, contract 88-102. The connection has 500 Mbit/s. Monthly price 44 euros.
Minimum term 24 months; after that the contract ends by itself. It does not renew.
Cancellation before that: 4 weeks in writing if you move to a place that we do not serve.
--- lift.txt
Maintenance of the lift, Schindele GmbH. Two inspections a year, 610 euros each.
The agreement is extended automatically by 2 years each time.
Either side may give notice of 6 months before a term ends.
--- parking.txt
Rent of two parking places to the car club. 90 euros a month, for 3 years.
The rent ends on 31 August 2027 without either party having to do anything; there is no renewal.
Either party may cancel at any time with a notice of 14 days.
""")

INVOICES = folder("""
--- a.txt
INVOICE no. 4417
Supplier: Kordes Paper
Date of invoice: 2025-02-11
40 reams A4 .......... 160.00
Postage .............. 12.50
Total due: 172.50 EUR
--- b.txt
Bright Window Cleaning
Invoice of 2025-02-28, customer 119
Ground floor 90.00, upper floors 145.00
Please pay 235.00 EUR within 14 days.
--- c.txt
Dear customer,
for the repair of your coffee machine on 2025-03-03 (this is also the invoice date)
we charge you 89.90 EUR.
With kind regards
Kaffee Lenz
--- d.txt
Rechnung / invoice: Taxi Yilmaz
2025-03-09, airport, 1 trip
Amount 54.00 EUR (VAT included)
--- e.txt
Invoice from Ostwind Energy for February, written 2025-03-15
Electricity 1,120 kWh: 380.80 EUR
Discount: -30.80 EUR
Amount payable: 350.00 EUR
""")

LAMP = folder("""
--- facts.txt
Product: Lumo 3 desk lamp
Light: 800 lumen, dimmable, warm to cold white
Battery: 9 hours, charges over USB-C in 2 hours
Weight: 640 g
Material: recycled aluminium, oak foot
Price: 79 euros, from 2 October
Made in Porto
""")

MODULES = folder("""
--- average.py
def average(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)
--- login.py
USERS = {"root": "hunter2", "mia": "secret1"}


def login(name, password):
    print("login", name, password)
    return USERS.get(name) == password
--- cleanup.py
import os
import time


def remove_old(folder, days):
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if time.time() - os.path.getmtime(path) > days * 86400:
            try:
                os.remove(path)
            except Exception:
                pass
""")

LISTS = folder("""
--- anna.txt
Milk
bread
Tomatoes
rice
--- ben.txt
coffee
bread
soap
milk
--- carla.txt
Tomatoes
Eggs
coffee
Lemons
apples
""")

INTERVIEWS = folder("""
--- budget_2023.csv
item,euros
rent,12000
paper,430
--- interview_anna.txt
Q: How long have you worked at the bakery?
Anna: Eleven years. I began as an apprentice when I was seventeen.
Q: What has changed?
Anna: The night shift is gone. We start at five now and not at one, since the dough rests in
cooling rooms. I see my children at dinner. The rolls are better, too, I think.
Q: What would you change?
Anna: The oven is from 1988. It breaks down every month.
--- interview_boris.txt
Q: You drive the van. What is a day like?
Boris: Forty-two stops, six days a week. Hotels first, then schools.
Q: And the new electric van?
Boris: Quiet, but in winter it barely makes the round. I had to be towed twice in January.
Q: Would you go back to diesel?
Boris: No. I want a charging point at the hotel in Lindau, that would do it.
--- menu.txt
Soup of the day 4.20
Lentil stew 6.80
--- old_notes.md
# Ideas for the anniversary
- balloons
- a cake as high as a man
--- packing.txt
tent, rope, lamp, matches
""")
REVIEWS_FR = folder("""
--- avis1.txt
Chambre propre et lit confortable, mais le petit-déjeuner à 18 euros est trop cher pour du pain
sec et un café tiède. Nous reviendrons sans doute, mais nous irons manger à la boulangerie.
--- avis2.txt
Un séjour horrible ! Des cafards dans la salle de bain, l'eau froide pendant trois jours et une
réception qui nous a ri au nez quand nous avons demandé un remboursement. N'y allez jamais.
--- avis3.txt
Personnel adorable, vue magnifique sur le port. Nous avons fêté nos dix ans de mariage et l'hôtel
nous a offert une bouteille de champagne. Merci à toute l'équipe !
--- avis4.txt
Correct. Le parking est petit et l'ascenseur était en panne, ce qui est gênant au cinquième étage,
mais la chambre était calme et le prix raisonnable.
""")

RECIPES_ES = folder("""
--- gazpacho.txt
Gazpacho de la abuela. Para 4 personas. Se hace en 20 minutos.
Necesitas tomates, pepino, ajo y aceite. Tritura todo y sirve muy frío.
--- lentejas.txt
Lentejas con chorizo, para 6 personas. Pon a cocer las lentejas con el chorizo, una zanahoria y
una cebolla. Tiempo: 50 minutos a fuego lento.
--- tortilla.txt
La tortilla clásica (2 personas): patatas, huevos, aceite. Fríe las patatas despacio, mezcla
con los huevos y cuaja por los dos lados. Tardas unos 35 minutos.
""")

MAILS_DE = folder("""
--- mail_keller.txt
Von: Petra Keller
Guten Tag, ich habe letzte Woche drei Blumenkästen bestellt, angekommen sind nur zwei.
Wann kommt der dritte? Bestellnummer 5521.
--- mail_oezcan.txt
Von: Deniz Özcan
Hallo, haben Sie am Samstag geöffnet? Ich würde gern die Rosen selbst abholen.
--- mail_wolff.txt
Von: Jürgen Wolff
Sehr geehrte Damen und Herren, die Hecke, die Sie gepflanzt haben, ist braun geworden.
Ich möchte, dass sich das jemand ansieht, am liebsten nachmittags.
--- hinweise.txt
Samstags ist von 9 bis 14 Uhr geöffnet.
Fehlende Ware schicken wir kostenlos nach, sie ist in drei Tagen da.
Bei kranken Pflanzen kommt Frau Brandt vorbei, sie kann dienstags ab 15 Uhr.
""")

NEWSLETTERS = folder("""
--- bikes.txt
Our spring service week runs from 7 to 12 April. Brakes, gears and chain for 49 euros.
Whoever comes on Monday gets a new bell as a present.
--- cinema.txt
In May we show four films by Agnes Varda, every Thursday at 20:00. Students pay half.
--- pool.txt
The outdoor pool opens on 1 May. The water is heated to 24 degrees by the new solar roof.
Season tickets are 80 euros, and 60 until the end of April.
--- zoo.txt
Two red panda cubs were born on 3 June. You can see them from July on. We look for names:
send yours until 20 June and win a night at the zoo.
""")

GUESTBOOK = folder("""
--- r1.txt
Das Essen war hervorragend, aber wir mussten eine Stunde auf den Nachtisch warten.
--- r2.txt
La terrasse est très bruyante, mais le poisson est le meilleur de la ville.
--- r3.txt
El camarero fue muy amable y nos regaló un postre para el cumpleaños de mi hija.
--- r4.txt
Il conto era sbagliato di dodici euro e nessuno si è scusato.
""")

APPLICANTS = folder("""
--- aydin.txt
Selin Aydin, electrician
2012-2015 apprenticeship at Elektro Maier
Since then 9 years of experience in building sites, the last three as a foreman.
Driving licence: class B. Languages: Turkish, German.
--- brandt.txt
CV Jonas Brandt
I finished my training last summer and have 1 year of experience as an electrician.
I do not have a driving licence yet. Languages: German, English.
Hobbies: climbing, chess
--- costa.txt
Maria Costa. Electrician for hospitals and laboratories, 14 years of experience.
I drive (licence B and C) and I am free from June. Languages: Portuguese, English.
--- dupont.txt
Luc Dupont
Electrician with 5 years of experience in solar plants.
I have no licence but a good bicycle. Languages: French, German.
""")

LOGS = folder("""
--- auth.log
08:00:01 INFO  auth started
08:14:22 INFO  token issued for user 12
08:15:09 WARN  slow answer from database (900 ms)
09:02:47 ERROR certificate expired
09:03:10 ERROR certificate expired
09:10:00 INFO  restarted
--- mailer.log
07:55:00 INFO  mailer started
08:20:31 INFO  sent 40 messages
10:41:05 ERROR connection refused by smtp.example.org
10:41:35 WARN  retry 1
10:42:05 INFO  sent 1 message
11:00:00 ERROR queue full
--- shop.log
08:00:05 INFO  shop started
08:01:44 WARN  no favicon
12:30:59 INFO  order 881 placed
12:31:02 ERROR payment provider timed out
12:31:40 INFO  order 881 paid
--- search.log
08:00:06 INFO  index opened, 18220 documents
08:40:12 INFO  query "lamp" 12 ms
09:15:00 WARN  query "a" 2100 ms
17:00:00 INFO  index closed
""")

TERMS = folder("""
--- manual.txt
The Feldmaus is a small weather station for gardens. Its probe, a steel pin of 12 cm, is pushed
into the ground and measures moisture. The hub is the white box indoors which collects what up
to eight probes send by radio. A reading is one value with the time when it was taken; the hub
keeps 10,000 readings and overwrites the oldest. A zone is a group of probes that share one
watering plan. When the moisture of a zone falls below its threshold, a percentage that you set,
the hub opens the valve, a motor on the garden tap that lets water through until the zone is wet
again.
""")

CHAPTERS = folder("""
--- chapter1.txt
Bees. A colony has one queen, who lays up to 2,000 eggs a day in summer. Workers live for about
six weeks in summer. They tell each other the way to flowers by a dance.
--- chapter2.txt
Ants. Leafcutter ants do not eat the leaves they carry. They grow a fungus on them, and that is
their food. A nest can be eight metres deep.
--- chapter3.txt
Termites. They build mounds of earth and saliva, which stay at 30 degrees inside. Unlike ants,
termites have a king who lives with the queen.
""")

CLAIMS = folder("""
--- policy.txt
Travel expenses
Hotels: at most 120 euros a night. Meals: at most 35 euros a day.
Trains are paid in second class only. Taxis are paid only between 22:00 and 6:00.
Alcohol is never paid.
--- claim1.txt
Mira, 3 June: hotel in Bonn, one night, 95 euros.
--- claim2.txt
Paul, 4 June: taxi from the station to the office at 14:30, 18 euros.
--- claim3.txt
Yusuf, 10 June: train to Kiel, second class, 74 euros.
--- claim4.txt
Greta, 12 June: dinner, 28 euros for pasta and water.
--- claim5.txt
Oskar, 15 June: hotel in Munich, one night, 180 euros.
--- claim6.txt
Lena, 20 June: two bottles of wine, 22 euros.
""")

GUESTS = folder("""
--- guests.csv
name,table,dish
Amara,4,mushroom risotto
Bruno,2,trout
Chiyo,7,lamb curry
Dimitri,2,vegetable tart
""")

"""Prompts of code, prose and chat, written for this study: two requests about each of sixteen beginnings.

The first half of each kind is seen: sizes of drafts are chosen on it. Published numbers are of the other half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

N_SEEN = 8
"""Beginnings of each kind on which sizes may be chosen."""
LONGER = "Continue this text with two more paragraphs in the same style:\n\n{}"


class Talk(NamedTuple):
    """Two requests: alone, or the second one after the answer to the first."""

    first: str
    second: str
    follows: bool = False


def talks(kind: str, seen: bool) -> Sequence[Talk]:
    """Those of one half of a kind: `code`, `prose` or `chat`."""
    made = {"code": _code, "prose": _prose, "chat": _chat}[kind]()
    return made[:N_SEEN] if seen else made[N_SEEN:]


def _code() -> list[Talk]:
    write_on = "Write unit tests with pytest for this code:\n\n```python\n{}```"
    return [Talk(f"{task} Give the whole code.\n\n```python\n{code}```", write_on.format(code)) for task, code in CODE]


def _prose() -> list[Talk]:
    return [Talk(f"{task}\n\n{text}", LONGER.format(text)) for task, text in PROSE]


def _chat() -> list[Talk]:
    return [Talk(first, second, follows=True) for first, second in CHAT]


CODE = (
    (
        "Rename `total` to `balance`.",
        """class Account:
    def __init__(self, owner):
        self.owner = owner
        self.total = 0
        self.history = []

    def deposit(self, amount):
        self.total += amount
        self.history.append(("deposit", amount))
        return self.total

    def withdraw(self, amount):
        if amount > self.total:
            raise ValueError("not enough money")
        self.total -= amount
        self.history.append(("withdraw", amount))
        return self.total
""",
    ),
    (
        "Add a docstring to every function.",
        """def celsius(fahrenheit):
    return (fahrenheit - 32) * 5 / 9


def fahrenheit(celsius):
    return celsius * 9 / 5 + 32


def kelvin(celsius):
    return celsius + 273.15


def table(start, stop, step):
    rows = []
    value = start
    while value <= stop:
        rows.append((value, fahrenheit(value), kelvin(value)))
        value += step
    return rows
""",
    ),
    (
        "Add type hints to every function.",
        """def read_rows(path):
    with open(path) as file:
        return [line.strip().split(",") for line in file]


def column(rows, index):
    return [row[index] for row in rows]


def mean(values):
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers)


def report(path, index):
    rows = read_rows(path)
    return f"{len(rows)} rows, mean {mean(column(rows, index)):.2f}"
""",
    ),
    (
        "Replace the print calls by logging.",
        """import time


def retry(action, attempts, wait):
    for number in range(attempts):
        try:
            print("attempt", number)
            return action()
        except OSError as error:
            print("failed:", error)
            time.sleep(wait)
    print("giving up")
    return None
""",
    ),
    (
        "Add a method `peek` that returns the next item without removing it.",
        """class Queue:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("the queue is empty")
        return self.items.pop(0)

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        return iter(self.items)
""",
    ),
    (
        "Make the size a parameter of each function.",
        """SIZE = 8


def empty_board():
    return [[" "] * SIZE for _ in range(SIZE)]


def place(board, row, column, piece):
    if not (0 <= row < SIZE and 0 <= column < SIZE):
        raise IndexError("outside of the board")
    board[row][column] = piece


def shown(board):
    return "\\n".join("|".join(row) for row in board)
""",
    ),
    (
        "Use f-strings instead of the % operator.",
        """def greeting(name, hour):
    if hour < 12:
        return "Good morning, %s!" % name
    if hour < 18:
        return "Good afternoon, %s!" % name
    return "Good evening, %s!" % name


def receipt(items):
    lines = ["%-20s %8.2f" % (name, price) for name, price in items]
    total = sum(price for _, price in items)
    lines.append("%-20s %8.2f" % ("total", total))
    return "\\n".join(lines)
""",
    ),
    (
        "Turn this class into a dataclass.",
        """class Rectangle:
    def __init__(self, width, height, color):
        self.width = width
        self.height = height
        self.color = color

    def area(self):
        return self.width * self.height

    def perimeter(self):
        return 2 * (self.width + self.height)

    def scaled(self, factor):
        return Rectangle(self.width * factor, self.height * factor, self.color)
""",
    ),
    # --- the half that is not seen
    (
        "Rename `data` to `readings`.",
        """class Sensor:
    def __init__(self, name, unit):
        self.name = name
        self.unit = unit
        self.data = []

    def add(self, value):
        self.data.append(value)

    def latest(self):
        return self.data[-1] if self.data else None

    def largest(self):
        return max(self.data, default=None)

    def text(self):
        return f"{self.name}: {self.latest()} {self.unit} of {len(self.data)} values"
""",
    ),
    (
        "Add a docstring to every function.",
        """def words(text):
    return text.lower().split()


def counts(text):
    found = {}
    for word in words(text):
        found[word] = found.get(word, 0) + 1
    return found


def most_frequent(text, n):
    ordered = sorted(counts(text).items(), key=lambda item: -item[1])
    return ordered[:n]


def unique(text):
    return sorted(set(words(text)))
""",
    ),
    (
        "Add type hints to every function.",
        """def neighbours(graph, node):
    return graph.get(node, [])


def reachable(graph, start):
    seen = {start}
    waiting = [start]
    while waiting:
        node = waiting.pop()
        for other in neighbours(graph, node):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def connected(graph, first, second):
    return second in reachable(graph, first)
""",
    ),
    (
        "Raise a ValueError instead of returning None.",
        """def parse_time(text):
    parts = text.split(":")
    if len(parts) != 2:
        return None
    hours, minutes = parts
    if not hours.isdigit() or not minutes.isdigit():
        return None
    if int(hours) > 23 or int(minutes) > 59:
        return None
    return int(hours) * 60 + int(minutes)


def duration(start, end):
    return parse_time(end) - parse_time(start)
""",
    ),
    (
        "Add a method `remove` that deletes a book by its title.",
        """class Library:
    def __init__(self):
        self.books = {}

    def add(self, title, author, year):
        if title in self.books:
            raise KeyError(f"{title} is already there")
        self.books[title] = {"author": author, "year": year}

    def by_author(self, author):
        return [title for title, book in self.books.items() if book["author"] == author]

    def before(self, year):
        return [title for title, book in self.books.items() if book["year"] < year]
""",
    ),
    (
        "Make the tax rate a parameter of each function.",
        """TAX = 0.19


def net(price):
    return price / (1 + TAX)


def gross(price):
    return price * (1 + TAX)


def tax(price):
    return gross(price) - price


def invoice(items):
    total = sum(gross(price) * amount for price, amount in items)
    taxes = sum(tax(price) * amount for price, amount in items)
    return {"total": round(total, 2), "tax": round(taxes, 2)}
""",
    ),
    (
        "Use pathlib instead of os.path.",
        """import os


def files_with(folder, ending):
    found = []
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and name.endswith(ending):
            found.append(path)
    return sorted(found)


def total_size(folder, ending):
    return sum(os.path.getsize(path) for path in files_with(folder, ending))


def newest(folder, ending):
    return max(files_with(folder, ending), key=os.path.getmtime)
""",
    ),
    (
        "Turn the loops into list comprehensions.",
        """def squares(numbers):
    found = []
    for number in numbers:
        found.append(number * number)
    return found


def even(numbers):
    found = []
    for number in numbers:
        if number % 2 == 0:
            found.append(number)
    return found


def pairs(first, second):
    found = []
    for a in first:
        for b in second:
            found.append((a, b))
    return found
""",
    ),
)
"""What to change -> the code that is to be changed."""

PROSE = (
    (
        "Correct the spelling of this text and leave the rest as it is.",
        "The harbor was quiet when the first boats came home. Gulls folowed them over the stone wall and setled on the "
        "roofs. Old Marten stood at the crane and counted the boxes, as he had done evry morning for thirty years. "
        "Nobody had asked him to count, but nobody had ever dared to tell him to stop. At eight he went to the bakery "
        "and told the baker how many fish the sea had given away.",
    ),
    (
        "Rewrite this text in the past tense.",
        "The train leaves the valley before sunrise. A girl with a red scarf sits by the window and draws the hills in "
        "a small book. Each hill gets a name, and each name gets a story. When the train stops at the lake, she closes "
        "the book and looks for her grandfather. He waits under the clock with two cups of cocoa and an umbrella that "
        "is far too small for both of them.",
    ),
    (
        "Summarize this text in three sentences.",
        "A garden on a roof keeps a house cool in summer. The soil holds water, and the plants give it back slowly, so "
        "the air above the roof stays mild. The weight is the largest problem: wet soil is heavy, and many old roofs "
        "were not built for it. Light soil made of crushed brick helps, and so do plants that need only a thin layer. "
        "A roof garden also lasts longer than tar, because the sun never reaches the sealing below.",
    ),
    (
        "Rewrite this letter in a more formal tone.",
        "Hi Anna, thanks for the boxes you sent last week. They got here in one piece, apart from the blue lamp, which "
        "has a crack in its foot. I glued it and it looks fine. Could you tell me what you paid for the shipping, so "
        "that I can send you the money? We are all looking forward to your visit in May. The guest room is painted and "
        "the cat has already moved in, so bring something against cat hair.",
    ),
    (
        "Replace every mention of the dog by a fox and leave the rest as it is.",
        "The dog came to the farm in the coldest week of the year. At first the dog only sat at the edge of the field "
        "and watched the smoke of the chimney. On the third day the farmer put a bowl of milk on the fence, and the "
        "dog drank it when the lights were out. In spring the dog followed the children to school, waited at the gate "
        "until noon, and walked them home again.",
    ),
    (
        "Rewrite this text as a list of steps.",
        "To make bread you first mix flour, water, salt and yeast in a large bowl. Then you knead the dough for ten "
        "minutes, until it is smooth and no longer sticks to your hands. Cover it with a cloth and let it rest for two "
        "hours in a warm place. After that you shape a loaf, let it rest again for half an hour, and bake it in a hot "
        "oven for forty minutes. The bread is done when it sounds hollow from below.",
    ),
    (
        "Shorten this text to half of its length.",
        "The old bridge over the river was built by a company that no longer exists. Its arches are made of yellow "
        "stone from a quarry upstream, which is now a lake for swimming. Every few years somebody proposes to replace "
        "the bridge by a wider one, and every time the people of the town collect names against it. The bridge is slow "
        "and narrow, they say, and that is why the town is still quiet.",
    ),
    (
        "Repeat this text and add one sentence at its end.",
        "On Mondays the museum is closed, and that is the day on which the clocks are wound. There are ninety of them, "
        "and no two agree about the time. The keeper begins in the cellar with the clock of the shipyard and ends "
        "under the roof with a clock that has only one hand. She has never tried to make them agree. Visitors come "
        "because of the disagreement, she says, and a museum should give people what they come for.",
    ),
    # --- the half that is not seen
    (
        "Correct the spelling of this text and leave the rest as it is.",
        "The libary of the village had one room and one window. In winter the shelfs near the stove were the most "
        "popular, whatever was on them. That is how half of the village came to know a great deal about bees, becuase "
        "the books about bees stood behind the stove. When the new libary was built, with heating in every room, the "
        "bees were put into the second floor, and nobody has borowed them since.",
    ),
    (
        "Rewrite this text in the past tense.",
        "The painter gets up at five and carries her chair to the beach. She paints the same rock every day, at the "
        "same hour, in whatever light there is. Walkers stop behind her and say that the rock is darker, or larger, or "
        "not there at all in the fog. She thanks them and changes nothing. In the evening she puts the picture beside "
        "the others and asks which of the rocks is the real one.",
    ),
    (
        "Summarize this text in three sentences.",
        "Salt was once so valuable that towns grew rich from it. It was boiled from sea water in flat pans, or cut "
        "from mines deep in the mountains. Carts brought it to the cities on roads that still carry its name. Salt "
        "kept meat and fish through the winter, and without it no ship could sail for long. When ice and later cold "
        "rooms did the same work, the price fell, and many of the towns became small again.",
    ),
    (
        "Rewrite this letter in a more formal tone.",
        "Dear neighbors, just a quick note about the stairs. We will paint them next week, from Tuesday to Thursday, "
        "so please use the back door if you can. The paint smells a bit, but only for a day. If you have a bike or a "
        "stroller in the hall, could you move it to the cellar by Monday evening? Sorry for the mess, and thanks a lot "
        "for your patience. There will be cake on Friday for everybody who did not touch the wall.",
    ),
    (
        "Replace every mention of the river by a lake and leave the rest as it is.",
        "The river decides everything in this town. When the river is high, the school stays closed and the children "
        "build rafts. When the river is low, the mayor worries about the mill. There is a stone at the river with "
        "marks for every flood, and old people touch the highest one when they pass. Strangers ask why nobody builds a "
        "wall against the river. Nobody would want to live here without the river, is the answer.",
    ),
    (
        "Rewrite this text as a list of steps.",
        "To repair a flat tire on a bicycle you first take the wheel out of the frame. Then you lift the tire over the "
        "rim with two levers and pull out the tube. Pump it up and hold it in water: bubbles show where the hole is. "
        "Dry the place, roughen it, and put on a thin layer of glue. After five minutes you press the patch on it. At "
        "last you put tube and tire back, pump it up, and check that the wheel turns freely.",
    ),
    (
        "Shorten this text to half of its length.",
        "The night bus is never empty. Bakers get on at two, nurses at three, and at four there is always somebody "
        "with a suitcase who is afraid to miss a flight. The driver knows most of them and waits if one is late. There "
        "is a rule against waiting, but the rule was made by people who sleep at night. In the last row somebody has "
        "written that the city belongs to those who are awake, and nobody has washed it off.",
    ),
    (
        "Repeat this text and add one sentence at its end.",
        "The map in the hall shows an island that does not exist. It was drawn by a captain who had promised his "
        "daughter an island of her own, and had found none. He gave it two mountains, a bay, and a forest with her "
        "name. Other captains copied the map, and for a hundred years ships looked for the island. One of them wrote "
        "that he had found it, but that it was smaller than on the map, and that somebody already lived there.",
    ),
)
"""What to do -> the text."""

CHAT = (
    ("Why is the sky blue?", "Explain that again to a child of six years."),
    ("What is the difference between weather and climate?", "Give me an example of each."),
    ("How do I learn to play the guitar?", "Make a plan for the first four weeks."),
    ("What should I cook tonight with rice, eggs and tomatoes?", "Write the recipe with amounts for two people."),
    ("Who was Marie Curie?", "What did she discover, and why was it important?"),
    ("What are the advantages of riding a bicycle to work?", "And what are the disadvantages?"),
    ("How does a vaccine work?", "Summarize your answer in three points."),
    ("Suggest five names for a small coffee shop.", "Which one do you like best, and why?"),
    ("Why do leaves change their color in autumn?", "Explain that again in simpler words."),
    ("What is the difference between a virus and a bacterium?", "Show the differences as a list."),
    ("How can I sleep better?", "Make a schedule for the evening."),
    ("What should I take along on a hike in the mountains?", "Sort that list by importance."),
    ("Who was Isaac Newton?", "Which of his ideas do we still use today?"),
    ("What are the advantages of working from home?", "And what are the disadvantages?"),
    ("How does a refrigerator work?", "Summarize your answer in three points."),
    ("Suggest five titles for a book about the sea.", "Which one would sell best, and why?"),
)
"""A question -> what is asked after its answer."""

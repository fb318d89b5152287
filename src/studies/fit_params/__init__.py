"""Does llama.cpp's `--fit` choose what this library's `fit` chooses?"""

RECORDS = {"fits": "study:FitAnswers"}

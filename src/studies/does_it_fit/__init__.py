"""Does a model fit on a card, does the plan agree with the engine's log, and what frees memory where it does not?"""

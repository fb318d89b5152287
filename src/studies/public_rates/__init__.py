"""How fast does a model run on a card that was not measured here?"""

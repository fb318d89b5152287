"""Where should a mixture's experts lie when not all fit on the card?"""

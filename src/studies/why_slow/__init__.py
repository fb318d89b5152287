"""Why is it slow: what bounds a token, and what a longer context takes from the card?"""

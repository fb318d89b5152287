"""Where should a model's weights lie when not all fit on the card: whole layers in RAM, or a mixture's experts?"""

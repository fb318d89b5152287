"""Why does decode slow down as a conversation grows?"""

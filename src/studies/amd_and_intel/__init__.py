"""Which backend of llama.cpp suits a card of AMD or Intel, and what limits it there?"""

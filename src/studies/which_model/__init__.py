"""Which model of the list suits a machine, for chat, long documents and code?"""

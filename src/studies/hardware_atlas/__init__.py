"""How near do plans of memory and speed come to every measurement of the repository?"""

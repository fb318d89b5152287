"""Settings in the words of each program: names, lines to paste, and what llama.cpp does with them by itself."""

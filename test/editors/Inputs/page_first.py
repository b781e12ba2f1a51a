"""page_first.py PAGE: the program that the page begins with."""
import html
import re
import sys

with open(sys.argv[1]) as f:
    print(html.unescape(re.search(r"<textarea[^>]*>\n(.*?)</textarea>", f.read(),
                                  re.S).group(1)), end="")

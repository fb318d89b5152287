"""Code on a page in lines and words, with the text that the author wrote."""

from bs4 import BeautifulSoup

from handbook.directives.code_lines import marked


def block(code: str) -> str:
    return f'<p>a-b</p><div class="highlight"><pre><span></span>{code}</pre></div>'


def test_each_line_is_an_element_that_knows_its_indentation():
    """A line that goes on below can be set in from where it began; its end belongs to it."""
    code = '<span class="k">if</span> x:\n    <span class="n">y</span>\n\n'
    lines = BeautifulSoup(marked(block(code)), "html.parser").select("pre > .line")
    assert [line.get_text() for line in lines] == ["if x:\n", "    y\n", "\n"]
    assert [line.get("style") for line in lines] == [None, "--indent: 4ch", None]


def test_an_option_is_one_word():
    """A word with a hyphen is an element, also where it begins within a token and ends in another one."""
    code = 'run<span class="w"> </span>--n-gen<span class="o">=</span><span class="s">&quot;a b-c&quot;</span>\n'
    words = BeautifulSoup(marked(block(code)), "html.parser").select(".word")
    assert [word.get_text() for word in words] == ['--n-gen="a', 'b-c"']


def test_the_text_and_the_colours_stay():
    """What a reader copies is what stood there; each sign keeps its token."""
    code = '<span class="c1"># a well-known  thing</span>\n<span class="nb">print</span><span class="p">(</span>1)\n'
    before, after = (BeautifulSoup(html, "html.parser") for html in (block(code), marked(block(code))))
    assert after.get_text() == before.get_text()
    assert "".join(token.get_text() for token in after.select(".c1")) == "# a well-known  thing"


def test_code_with_more_than_tokens_is_left_alone():
    """Tokens within tokens, as on a line with a mark of its own, stay as they are."""
    nested = block('<span class="hll"><span class="k">if</span> x-y</span>\n')
    assert marked(nested) == nested

"""Texts on which tokenizers that are nearly the same come apart."""

# ruff: noqa: RUF001 (characters that look like others are the point)

_CHOSEN = [
    "",
    " ",
    "   three leading blanks, two trailing  ",
    "a\tb\t\tc\n\n\nd\r\ne\rf",
    "In the beginning God created the heaven and the earth.",
    "don't we'll I'VE they're it's",
    "1234567890 3.14159 1,000,000 2026-11-30 0x1F",
    "你好,世界。 日本語のテキスト 한국어",
    "مرحبا بالعالم שלום עולם",
    "🙂🏽👩‍👩‍👧‍👦🇩🇪 ✨",
    "e\u0301 \u00e9 \u212b \ufb01 \u00df \u0130",  # combining and precomposed letters must not be normalised
    "a\u00a0b\u200bc\u2028d\ufeffe\u3000f",  # blanks that are none
    "<|endoftext|> inside <|endoftext|>",  # the characters of the special token, in a text
    "<s></s><unk>[CLS]",
    "x" * 300,
    "\u0000\u0001\u007f",
    "def f(x):\n    return x**2  # ²\n",
    "MiXeD CaSe\u2014dash \u201cquotes\u201d \u2026",
    "'s 't 're 've 'm 'll 'd 'S 'T 'RE 'VE 'M 'LL 'D 'x ''s s' \u2019s",
    "don\u2019t can'tve o'clock 'tis '90s rock'n'roll",
    "१२३ ٣٤٥ 四五六 Ⅷ ½ ² ₃ ① ㊿ 𝟘𝟙",  # digits and numbers that are not 0 to 9
    "a1b22c333d4444e55555 v1.2.3-rc4 1e-10 +49(0)30",
    "Straße ÄÖÜ ǅ ŉ ﬀ İstanbul ΑΣΣ ς",
    "Здравствуй, мир! Їжак Ђорђе",
    "γειά σου Κόσμε ἀρχῇ",
    "नमस्ते दुनिया বাংলা ਪੰਜਾਬੀ தமிழ் తెలుగు",  # letters with marks that are no letters
    "สวัสดีชาวโลก ລາວ မြန်မာ ខ្មែរ",
    "Tiếng Việt: ệ ẫ ợ ữ; e\u0323\u0302",
    "ᚠᚢᚦ 𐎠𐎡 𒀀𒀁 𐐀𐐨 𝒜𝓑",  # beyond the basic plane
    "\U0001f468\u200d\U0001f4bb \U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 1\ufe0f\u20e3 \u2764\ufe0f",
    "\u202eright to left\u202c \u2066isolated\u2069",
    "\ue000\uf8ff \U000f0000 \ufffd \ufffe \uffff \U0010ffff",  # private use and no characters
    "\u0085next line \u000bvertical\u000cform \u001c\u001d\u001e\u001f",
    "soft\u00adhyphen zero\u200dwidth\u200cjoiners \u2060word",
    "http://example.org/a?b=c&d=%20#e user@example.org C:\\path\\to",
    '{"key": [1, -2.5e3, null, true], "text": "a\\n\\"b\\""}',
    "<html>&nbsp;<!-- c --></html> $x^2$ \\alpha @#~`|",
    "for(int i=0;i<10;++i){a[i]+=b->c;} // !=\n\t\treturn;",
    "==== ---- .... !!!! ???? ,,,, ;;;; \"\"\"\" '''' ``` ***",
    "word.Word,word;word:word!word?word-word_word/word",
    "(a)[b]{c}<d> \u00aba\u00bb \u300ca\u300d \uff08a\uff09",
    "$5 \u20ac6 \u00a37 \u00a58 100% 20\u00b0C \u00b13 \u00d74 \u2248 \u2211\u222b",
    "line\n line\n\n  line\r\n\r\nline \n \r \n",
    "\n\n\n",
    "\r\n\r\n",
    "\t \t \t",
    " \n \n x",
    "end with newline\n",
    "end with blank ",
    "\u00a0",
    "\u3000\u3000全角 空白\u3000",
    "ａｂｃ１２３！",  # full width
    "a\u0300\u0301\u0302\u0303\u0304\u0305 z\u0336a\u0336l\u0336g\u0336o",
    "[INST] <<SYS>> </s> <|im_start|>user\n<|im_end|> <|begin_of_text|><|eot_id|>",
    "<|endoftext|>",
    "<|endoftext|",
    "[PAD0] [UNK] [MASK] <pad> <0x0A> \u2581word \u0120word \u010a",  # how vocabularies write blanks and bytes
    "ab" * 200,
    " " * 100 + "x",
    "\n" * 50,
    "9" * 120,
    "字" * 90,
    "🙂" * 40,
    "'" * 33,
    ("lorem ipsum " * 30).strip(),
]

_PIECES = [
    *("a", "Z", "é", "ß", "Ж", "字", "あ", "한", "ש", "ع", "न", "ि", "ก"),
    *("7", "42", "2026", "²", "½", "٣", "Ⅷ"),
    *(".", ",", "'s", "'LL", "--", "_", "€", "🙂", "\u0301", "\u200d", "\ufeff"),
    *(" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0000"),
]
"""A letter, digit, sign or blank of each sort that pre-tokenizers tell apart, or fail to."""

COUNT = 200


def _mixed(count: int) -> list[str]:
    """Rows of pieces in an order that puts ever other ones side by side: the same ones for ever."""
    texts, state = [], 1
    for length in range(2, 2 + count):
        parts = []
        for _ in range(2 + length % 9):
            # A linear congruential generator modulo 2^31 with the constants of glibc; its high bits are used.
            state = (1103515245 * state + 12345) % 2**31
            parts.append(_PIECES[(state >> 8) % len(_PIECES)])
        texts.append("".join(parts))
    return texts


NASTY_TEXTS = _CHOSEN + _mixed(COUNT - len(_CHOSEN))

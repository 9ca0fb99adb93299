"""Texts on which tokenizers that are nearly the same come apart."""

NASTY_TEXTS = [
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
]

"""The prompts whose token ids are fixtures (see tokenizer.py). The first seven are the ones every port is checked with first."""

import random
import string

START, END = "<|startoftext|>", "<|endoftext|>"

FIRST = [
    "a photo of an astronaut riding a horse on mars",
    "",
    "A Photo  of\nCAFÉ — naïve 日本語 🙂!!! 1234's it's",
    "hello's 3.14 (masterpiece:1.2), best-quality",
    "ﬁ Å Å é café",
    f"{END} x {START}",
    "word " * 90,
]

# public bug reports: contractions, digits, padding, counts of long prompts, brackets
REPORTED = [
    "You should've done this",
    "you're, don't, her's",
    "a photo of a fox",
    "1233",
    "12 33",
    "cat on the pavement",
    "hello world",
    "an astronaut riding a horse on mars",
    "! !! !!!",
    ",".join([*string.ascii_lowercase, *string.ascii_lowercase[:16]]) + ",",
    "apple, realistic, detailed, " * 16,
    "is it over?",
    "is it over?" * 40,
    "x ((y:2) z",
    "(((owl)))",
    "(big [red] dog)",
    r"\(plain\)",
    "(one)(two)",
    "cat)",
    "ereshkigal (ereshkigal (fate))",
    " ",
    "[[[{{((",
    "<lora:add_detail:0.8>, a {red|blue} __color__ BREAK AND (dog:1.3)",
]

CONTRACTIONS = [
    "it's it'S IT'S it’s 's s' ''s '' ' 's's",
    "I'm I'd I'll we've we're can't 'm 'd 'll 've 're 't",
    "rock'n'roll o'clock y'all'd've 'tis 'twas d'artagnan",
    "!'s .'re ,'ve 'sss 'llama 'dog 'map 'test 'very 'really",
    "5's 1990's '90s 7'd",
    "\u02bcs \u2019re \uff07ve `s ´t",
]

SPECIAL = [
    END,
    START,
    f"{END}{END}",
    f"{START}{END}{START}",
    f"a{END}",
    f"{END}a",
    f"a cat{END}!",
    f"a cat?{END}",
    f"({END})",
    f"'{END}'s",
    f"..{START}..",
    f"1{END}2",
    f"a {END.upper()} b {START.upper()} c",
    "<|EndOfText|><|StartOfText|>",
    "<|endoftext |> < |endoftext|> <|endoftext|",
    "<|endoftex\u0301t|> <|startofte\u0301xt|>",
    f"\t{END}\n{START}\u00a0{END}",
    f"cafe{END}\u0301 cafe\u0301{START}\u0301",
    "</w> word</w> <w> </ w>",
    f"{END} " * 80,
    "<|startoftext|>" * 76,
    "<|padding|> <pad> <unk> <s> </s> [CLS] [SEP] [MASK]",
]

SPACES = [
    "  leading",
    "trailing  ",
    "a\tb\nc\r\nd\x0be\x0cf",
    "a\u00a0b\u1680c\u2000d\u2003e\u2009f\u200ag\u2028h\u2029i\u202fj\u205fk\u3000l",
    "zero\u200bwidth\u200cnon\u200djoiner\u2060word\ufeffbom",
    "\ufeffbom first",
    "next\u0085line mongolian\u180evowel",
    "\n\n\n",
    "\u3000",
    "unit\x1fsep\x1erec\x1dgroup\x1cfile",
    "soft\u00adhyphen non\u2011breaking",
]

CONTROL = [
    "nul\x00nul",
    "".join(map(chr, range(1, 32))),
    "del\x7f c1\x80\x81\x9f",
    "\x1b[31mred\x1b[0m",
    "bidi \u202eevil\u202c \u2066iso\u2069",
    "\ufffd \ufffe \uffff \U0010ffff",
    "private \ue000 \U000f0000",
    "variation \ufe0f \ufe0e \U000e0100",
]

CASES_AND_MARKS = [
    "ΟΔΥΣΣΕΥΣ Σ ΣΑΣ ὈΔΥΣΣΕΎΣ",
    "İstanbul DİYARBAKIR ıI iİ",
    "STRASSE Straße ẞ ß",
    "Ǆ ǅ ǆ Ǉ Ǌ Ǳ",
    "ÀÉÎÕÜ Ç Ñ Ø Æ Œ Đ Ł Þ",
    "A\u030a e\u0301 o\u0308 n\u0303 c\u0327 u\u0308\u0304",
    "q\u0323\u0307 q\u0307\u0323 \u0307 \u0301a",
    "Z\u0351\u036b\u0343a\u0328\u035bl\u0340\u0341g\u0322o\u0321",
    "\u212b \u2126 \u212a K \u0340 \u0374",
    "\u1e9b\u0323 \u0344 \u0958 \ufb2a \u2adc",
    "ﬀ ﬁ ﬂ ﬃ ﬄ ﬅ ﬆ ĳ Ĳ",
    "fullwidth ＡＢＣ １２３ ｆｏｘ ！？",
    "𝐁𝐨𝐥𝐝 𝓢𝓬𝓻𝓲𝓹𝓽 𝔉𝔯𝔞𝔨 𝟙𝟚𝟛",
    "Ⓐⓑ ⒈ ① ② Ⅷ ⅷ ½ ¼ ² ³ ₂",
    "Ꮳꮳ Ა ა Ⴀ ⴀ 𐐀 𐐨 𞤀 𞤢",
]

SCRIPTS = [
    "日本語の猫の写真",
    "一只红色的苹果，水彩画。",
    "고양이 사진 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "ひらがな カタカナ ｶﾞｷﾞｸﾞ か\u3099 ー",
    "قطة صغيرة في الحديقة، ٣ تفاحات",
    "اَلْعَرَبِيَّةُ ﷺ لا ﻻ",
    "חתול שָׁלוֹם \u05e9\u05c1",
    "แมวน่ารักนั่งบนหลังคา ๑๒๓",
    "बिल्ली का चित्र क्षत्रिय १२३",
    "বিড়াল தமிழ் పిల్లి ಬೆಕ್ಕು പൂച്ച",
    "Кошка на крыше ЁЖ ѣ",
    "γάτα στη στέγη, Ἄνθρωπος",
    "կատու ԿԱՏՈՒ և",
    "კატა სახურავზე",
    "con mèo trên mái nhà Việt Nam",
    "kočka na střeše žluťoučký kůň",
    "ድመት ᠮᠣᠩᠭᠣᠯ བོད་སྐད ကြောင်",
    "𠮷野家 𩸽 㐀 𪜀 𰻝",
    "𒀀𒁀 𓀀𓃠 𐎀 𐤀",
]

EMOJI = [
    "🙂 😀😀 😀 😀",
    "👍🏽 👩🏿‍🚀 👨‍👩‍👧‍👦 🏳️‍🌈 🏴‍☠️",
    "🇯🇵🇺🇸 🇩🇪 🇪",
    "1️⃣ #️⃣ *️⃣ 🔟 ©️ ®️ ™️",
    "❤️ ❤ ☺︎ ✈︎ ♀️",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "cat🐈‍⬛dog🐕‍🦺 🫠🫨🪿🫩",
    "ʕ•ᴥ•ʔ (╯°□°)╯︵ ┻━┻ ¯\\_(ツ)_/¯ :-) ;)",
]

SYMBOLS = [
    "!@#$%^&*()_+-=[]{}|;:'\",.<>/?`~\\",
    "… — – ‘single’ “double” «guillemets» ¿qué? ¡hola!",
    "a-b_c.d,e;f:g/h\\i|j",
    "3.14 1,000,000 10% $5 €7 £8 ¥9 50°C 5×5 2+2=4 x² 1e-5 0xFF",
    "100mm f/1.8 ISO-400 4K 8k HDR 16:9 35mm",
    "http://example.org/a?b=c&d=e#f user@example.org #hashtag @name",
    "← → ↑ ∑ ∫ √ ∞ ≠ ≤ ∀ ∃ ∅ ∈",
    "█▓▒░ ┌─┐ ♠♥♦♣ ♔ ♪ ☀☁☂ ✓✗ ★☆",
    "snake_case camelCase PascalCase kebab-case SCREAMING_CASE",
    "......... ------- !!!!!! ?????? ,,,,, ''''' \"\"\"",
    "a.b.c...d a,b ,c a 'b' \"c\"",
    "\\n \\t \\x00 %s {0} ${x} <b>bold</b> &amp; &lt; <!-- -->",
    "1 22 333 4444 55555 666666 7777777 a1b2c3 1a 2b ٤٥ 六七 Ⅻ",
]

PROMPTS = [
    "red apple, flat style",
    "grinning face, glossy 3d style",
    "A highly detailed matte painting of a castle on a cliff, trending on artstation, by Greg Rutkowski and Alphonse Mucha",
    "portrait of a young woman, 85mm, bokeh, Kodak Portra 400, soft light, masterpiece, best quality",
    "ugly, tiling, poorly drawn hands, poorly drawn feet, out of frame, extra limbs, disfigured, deformed, body out of frame, bad anatomy, "
    "watermark, signature, cut off, low contrast, underexposed, overexposed, bad art, beginner, amateur, distorted face, blurry, draft, grainy, "
    "lowres, jpeg artifacts, duplicate, mutilated, mutation, cropped, worst quality, username, text",
    "isometric voxel art of a tiny cosy living room at night, warm lamps, rain on the window, ultra-detailed, octane render, 8k",
    "antidisestablishmentarianism supercalifragilisticexpialidocious pneumonoultramicroscopicsilicovolcanoconiosis",
    "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "xqzjkvbw qqqq zzzzzzzz aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG",
    "the quick brown fox jumps over the lazy dog. " * 9,
    "an oil painting of a fox " * 20 + END,
    "photo, " * 37 + "the end",
    "photo, " * 37 + "the",
    "photo, " * 37 + "a tail that is cut: CAFÉ, 日本語, 🙂 (it's 12%) and more",
    "🙂" * 120,
    "🦖" * 120,
    "日本語" * 40,
    "0123456789" * 8,
    "1 " * 75,
    "1 " * 76,
    "1 " * 74,
    "a" * 600,
    "ab" * 500,
    "!" * 500,
    "é" * 300,
    "hahaha" * 100,
    "\u0301" * 200,
]

TEXTS = [*FIRST, *REPORTED, *CONTRACTIONS, *SPECIAL, *SPACES, *CONTROL, *CASES_AND_MARKS, *SCRIPTS, *EMOJI, *SYMBOLS, *PROMPTS]

# where characters are drawn from: ASCII, Latin, combining marks, Greek to Arabic, Indic to Thai, general punctuation and symbols,
# CJK, Hangul, presentation forms, emoji, the whole range
BLOCKS = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x6FF), (0x900, 0xE7F), (0x2000, 0x2BFF),
    (0x3000, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFD), (0x1F000, 0x1FAFF), (0x1, 0x10FFFF),
]
PIECES = ["'s", "'re", "'", " ", "  ", "\n", END, START, "the", "CAT", "ing", "1", "99", "!", "?!", "(", ")", "\u200d", "\ufe0f", "\u0301", "é", "<|", "|>"]


def character(source: random.Random, block: tuple[int, int]) -> str:
    while True:
        code = source.randint(*block)
        if not 0xD800 <= code <= 0xDFFF:
            return chr(code)


def random_texts(source: random.Random) -> list[str]:
    """Runs within each block, mixtures of blocks, and mixtures with the pieces at which tokenizers differ."""
    texts = []
    for block in BLOCKS:
        for length in (3, 12, 40, 150):
            texts.append("".join(character(source, block) for _ in range(length)))
    for _ in range(40):
        texts.append("".join(character(source, source.choice(BLOCKS)) for _ in range(source.randint(1, 60))))
    for _ in range(60):
        parts = [source.choice(PIECES) if source.random() < 0.7 else character(source, source.choice(BLOCKS)) for _ in range(source.randint(2, 50))]
        texts.append("".join(parts))
    return texts

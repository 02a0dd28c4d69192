"""The Chinese pages say the same as the English ones (parts, code, names, numbers, links) and are typeset well.

Nothing of theirs is run: `tests/docs/test_docs.py` runs the blocks of the English pages, which these pages repeat.
"""

import itertools
import json
import re
from collections import Counter

import pytest
from pages import CHINESE, PAGES, ROOT, blocks, code_words, links, name_of, prose, table

DOCS = ROOT / "docs"
# Other translations of a term, and the word of the glossary.
VARIANTS = {
    "代理": "智能体",
    "收集器": "采集器",
    "收集数据": "采集",
    "在策略": "同策略",
    "离策略": "异策略",
    "重放": "经验回放",
    "经验池": "经验回放缓冲区",
    "缓存区": "经验回放缓冲区",
    "存档点": "检查点",
    "恢复训练": "断点续训",
    "矢量化": "向量化环境",
    "评价": "评估",
    "测评": "评估",
    "优势函数估计": "优势估计",
    "政策": "策略",
    "奖赏": "奖励",
    "报酬": "奖励",
    "收益": "回报",
    "观察值": "观测",
    "剧集": "回合",
    "情节": "回合",
    "标准偏差": "标准差",
    "学习速率": "学习率",
    "折现": "折扣因子",
    "贴现": "折扣因子",
    "内部奖励": "内在奖励",
    "演员": "actor",
    "评论家": "critic",
    "车道": "泳道",
    "并行段": "泳道",
    "限速器": "限流器",
    "权重板": "权重发布区",
    "自助法": "bootstrap 置信区间",
    "通路": "通道",
    "封装器": "包装器",
    "批次": "小批量",
    "掩膜": "动作掩码",
    "时间轴": "时间线",
    "标准化": "归一化",
    "预置": "预设",
    "文件夹": "目录",
    "设置项": "配置项",
    "参数项": "配置项",
    "工厂方法": "工厂函数",
    "自我博弈": "自博弈",
    "工作者": "工作进程",
}
_CJK = "\u4e00-\u9fff"
_FULL = "，。；：？！、（）《》“”"
_SLIPS = {
    "half-width punctuation in a Chinese sentence": rf"[{_CJK}][,;:?!]|[{_CJK}]\.(?!\w)|[{_CJK}]\(|\)[{_CJK}]",
    "a space beside full-width punctuation": rf"(?<![|\s-])[ \t]+[{_FULL}]|[{_FULL}][ \t]+(?![|\s])",
    "a space within Chinese text": rf"[{_CJK}][ \t]+[{_CJK}]",
    "no space between Chinese and other text": rf"[{_CJK}][A-Za-z0-9`+]|[A-Za-z0-9`%][{_CJK}]",
    "brackets within brackets": r"（[^（）\n]*（英文）",
    "a sentence in English": r"(?:\b[A-Za-z]+ ){4}[A-Za-z]+",
}
# Markdown shows no emphasis that begins with punctuation, or ends after it and before a Chinese character.
_EMPHASIS = re.compile(r"\*\*(?P<inside>[^*\n]+)\*\*(?P<after>.?)")


def chinese_of(page):
    """Where the Chinese page is that belongs to an English one, whether it exists or not."""
    return ROOT / "README.zh.md" if page == ROOT / "README.md" else DOCS / "zh" / page.relative_to(DOCS)


def translated():
    """The pages that have to exist in both languages, in English."""
    names = ["README", "tutorial", "zoo", "results", "glossary", "configuration", "middleware", "async", "reliability"]
    names += ["from_mindspore_rl", "from_kaiwu", "from_di_engine"]
    names += ["algorithms/ppo", "algorithms/dqn", "algorithms/sac", "algorithms/qmix"]
    pages = [DOCS / f"{name}.md" for name in names]
    return [ROOT / "README.md", *pages, *sorted((DOCS / "howto").glob("*.md"))]


PAIRS = [pytest.param(page, chinese_of(page), id=name_of(page)) for page in translated()]
OURS = {chinese_of(page): page for page in translated()}


def translation_of(path):
    """The Chinese page or picture that belongs to an English one; where there is none, the English one."""
    picture = path.with_name(f"{path.stem}.zh{path.suffix}")
    return chinese_of(path) if path in OURS.values() else picture if picture.is_file() else path


def without_comments(block):
    code = re.sub(r"(?m)(^|[ ]+)# .*$", "", block.code)
    return re.sub(r'""".*?"""', '""""""', code, flags=re.DOTALL)


def levels(page):
    return [len(found) for found in re.findall(r"^(#+) ", prose(page), re.MULTILINE)]


def tables(page):
    """For each table, the numbers of cells in its lines."""
    found = [[]]
    for line in prose(page).splitlines():
        if line.startswith("|"):
            found[-1].append(len(re.findall(r"(?<!\\)\|", line)))
        elif found[-1]:
            found.append([])
    return found


def sentences(text):
    """A page's prose as it is read: links and emphasis without their signs, no comments, tags and addresses."""
    text = re.sub(r"<!-- generated:.*?<!-- /generated -->", "", text, flags=re.DOTALL)
    text = re.sub(r"<https?:[^>\n]+>", "`x`", text)
    text = re.sub(r"<!--.*?-->|<[^>\n]+>", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`\n]+`", "`x`", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)\s]+\)", r"\1", text)
    return text.replace("**", "")


def numbers(page):
    return Counter(re.findall(r"\d+(?:[.,]\d+)*", sentences(prose(page))))


def targets(page):
    """How often the page links each other file and anchor; of files that exist in Chinese, the file alone."""
    found = Counter()
    for link in links(page):
        name, _, anchor = link.partition("#")
        path = (page.parent / name).resolve() if name else page
        if path != page:
            found[path, "" if path in {*OURS, *OURS.values()} else anchor] += 1
    return found


# The same as in English


def test_the_same_pages_exist_in_both_languages():
    assert {*CHINESE} == {*OURS}
    assert {*OURS.values()} <= {*PAGES}
    assert len(OURS) > 15


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_a_page_has_the_same_headings_and_tables(english, chinese):
    assert levels(chinese) == levels(english)
    assert tables(chinese) == tables(english)


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_a_page_has_the_same_code_but_for_comments(english, chinese):
    theirs, ours = blocks(pages=[english]), blocks(pages=[chinese])
    assert [(block.language, block.notes) for block in ours] == [(block.language, block.notes) for block in theirs]
    for our, their in zip(ours, theirs, strict=True):
        assert without_comments(our) == without_comments(their), f"{our} differs from {their}"


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_tables_that_code_writes_are_in_the_chinese_page_too(english, chinese):
    theirs, ours = (
        re.findall(r"(?m)^<!-- generated:(\S+) -->$", page.read_text(encoding="utf-8")) for page in (english, chinese)
    )
    assert ours == [f"{name}:zh" for name in theirs]


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_a_page_names_the_same_code_and_numbers(english, chinese):
    named = {*code_words(prose(chinese))}
    assert named == {*code_words(prose(english))}
    assert numbers(english) - numbers(chinese) == Counter()


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_a_page_links_the_same_pages_in_chinese_where_they_exist(english, chinese):
    linked = targets(chinese)
    expected = Counter()
    for (page, anchor), count in targets(english).items():
        if page != chinese:
            expected[translation_of(page), anchor] += count
    assert expected - linked == Counter()
    translations = {page for page, _ in linked} & {*OURS.values()} - {english}
    assert translations == set(), "a link leads to an English page that exists in Chinese"


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_a_link_to_a_page_in_english_says_so(page):
    found = re.findall(r"(?<!!)\[([^\[\]]+)\]\(([^)\s#]+\.md)(?:#\S*)?\)", prose(page))
    english = [text for text, link in found if (page.parent / link).resolve() not in CHINESE]
    assert [text for text in english if text != "English" and "英文" not in text] == []


def test_the_overview_links_every_chinese_page():
    overview = DOCS / "zh" / "README.md"
    linked = {page for page, _ in targets(overview)}
    assert {*CHINESE} - linked - {overview, ROOT / "README.zh.md"} == set()


@pytest.mark.parametrize("name", ["README.md", "docs/README.md"])
def test_the_languages_link_each_other_in_their_first_line(name):
    english = ROOT / name
    for page, other in ((english, chinese_of(english)), (chinese_of(english), english)):
        first = page.read_text(encoding="utf-8").split("\n\n")[1]
        (link,) = re.findall(r"^\[[^\]]+\]\((\S+)\)$", first)
        assert (page.parent / link).resolve() == other


# Words


def test_the_glossary_is_the_same_in_both_languages():
    english, chinese = table(DOCS / "glossary.md", "term"), table(DOCS / "zh" / "glossary.md", "英文")
    assert [row[:2] for row in chinese] == [row[:2] for row in english]
    terms = [row[0] for row in english]
    assert terms == sorted(terms, key=str.lower)
    assert len({row[1] for row in english}) == len(english)


def test_a_word_that_is_preferred_is_in_the_glossary():
    words = " ".join(row[1] for row in table(DOCS / "glossary.md", "term"))
    assert [word for word in VARIANTS.values() if word not in words] == []


def variants(text):
    return [f"{variant}: {word}" for variant, word in VARIANTS.items() if variant in text]


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_a_chinese_page_uses_the_words_of_the_glossary(page):
    assert variants(page.read_text(encoding="utf-8")) == []


def test_first_paragraphs_are_typeset_well_and_name_what_exists():
    when = json.loads((DOCS / "zh" / "algorithms.json").read_text(encoding="utf-8"))
    assert [name for name in when if not (DOCS / "algorithms" / f"{name}.md").is_file()] == []
    assert [found for text in when.values() for found in (*variants(text), *slips(text))] == []


# Typesetting


def slips(text):
    found = [
        f"{kind}: {match[0]!r} in {line.strip()!r}"
        for kind, pattern in _SLIPS.items()
        for line in sentences(text).splitlines()
        for match in re.finditer(pattern, line)
    ]
    for match in _EMPHASIS.finditer(text):
        inside, after = match["inside"], match["after"]
        if (inside[-1] in _FULL and re.match(rf"[{_CJK}\w]", after)) or inside[0] in _FULL:
            found.append(f"emphasis that is not shown: {match[0]!r}")
    # A line break between Chinese characters is shown as a space.
    return [*found, *(f"a paragraph of several lines: {line!r}" for line in continued(text))]


def continued(text):
    lines = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).splitlines()
    return [
        after
        for before, after in itertools.pairwise(lines)
        if before.strip() and re.match(rf"\s*[\w`*\[{_CJK}{_FULL}]", after) and not before.startswith(("|", "<", "#"))
    ]


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_a_chinese_page_is_typeset_well(page):
    assert slips(prose(page)) == []

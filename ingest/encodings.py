"""Which encoding bytes are in when they are not UTF-8 and nothing says it.

Every candidate is an encoding together with a language: the text that it makes of the bytes is priced, common
characters cheaply, rare ones and impossible ones dearly, as if it had to be sent in a code made for that
language. The cheapest is the likeliest. All candidates explain the same bytes, so that nothing need be
normalised, and a few damaged bytes cost a little instead of ruling an encoding out.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

_SAMPLE = 1 << 16
_TOO_DEAR = 5.5  # nats a byte, of two to a character: dearer than this is noise, and no text

# The commonest characters of running and of technical text. A few hundred make two thirds of either.
_SIMPLIFIED = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然"
    "家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心本前开但因只从想实日军者意无力它与长把机"
    "十民第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应向体文件数据系统程序线程块内存储器缓寄令指执行"
    "计算矩阵乘法循环函参变量类型值返回编译优化带宽延迟读写访问共享全局同步并行加速核设备主机配置参考说明示例版本支持"
    "使用代码源路径目录表图输入出结果错误如果则否需要必须每单位大小长度边界检查初始化调接口模式默认选项启动步骤张量精度浮"
    "整字节对齐向标准转换操作符号地址索引队列状态条比较相等通常例包含处理信息提供限制次层级别位置空接受发送基于新建运"
    "至由于何不同样若仅该及或即各再更高低快慢少减增合适目标区域组织名称注释避免冲突填充访存越防止冗余量级缺失命填载密"
)
_TRADITIONAL = frozenset(
    "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過發後作裡用道行所然"
    "家種事成方多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心本前開但因只從想實日者意無力它與長把機"
    "十民第公此已工使情明性知全三又關點正業外將兩高間由問很最重並物手應向體文件數據系統程式執行緒區塊記憶體儲存器快取"
    "暫指令計算矩陣乘法迴圈函參變量類型值返回編譯最佳化頻寬延遲讀寫存取共用享全域同步平行加速核心裝置主機設定參考說明"
    "範例版本支援使用碼原始路徑目錄表圖輸入出結果錯誤如果則否需要必須每單位大小長度邊界檢查初始化呼叫介面模式預設選項啟"
    "動步驟張量精度浮點整數位元組對齊向標準轉換操作符號位址索引佇列狀態條比較相等通常例包含處理資訊提供限制次層級別置"
    "空接受發送基於新建運至何不同樣若僅該及或即各再更高低快慢少減增合適目標區域組織名稱註解避免衝突填充越防止"
)
_KANJI = frozenset(
    "日一国人年大本中長出三時行見月後前生五間上東四今金九入学高円子外八六下来気小七山話女北午百書先名川千水半男西電"
    "校語土木聞食車何南万毎白天母火右読友左休父雨実行列演算命令処理共有記憶装置帯域幅並計用使同期方法場合数値型関変"
    "返引配設定参照例示図表番号出力結果以各複異低接続直化必要可能性最適大小初期度次元要素分割単位制限回路境界確認開始終"
    "了条件対象範囲指精密速度性構成内部全体別名前作成変更追加除去読込書転送実装機能目的説明仕様基本標準状態情報登録保護"
    "加減乗積和差比較等合計平均最高以下未満超選択利避推奨衝突発生違的際現在第新通常他当部物手自動問題理由意味"
)
_HANGUL = frozenset(
    "이다는의에을를가은고하로한지사있기도서어자수시그나인대리아해정일스제보여전상들주부라장과만으게비국원성되적공부동구러요"
    "면우조할무와저마유계진신중교문관때세선없것생각경학실소방내연물분치양위모입안당든발명용음결통화간현재같많른레드블록메"
    "모리공유스레접근뱅크충돌발생직렬대역폭낮아패딩사용피좋터제각최개번째값함수변환배열행렬곱셈연산명령캐시벡터코어장치"
    "메인덱산검경계호출반복문루프크기길초설정옵션기본예오류처리성능최적병동입출력파일경로참조설버전타입형식주석읽쓰쓴"
    "써된될때또및등위해므로데니까려야합습며큰작높더더욱속도점순서불필요존않못줄늘추가저감소향필"
)
# Letters of alphabets, the commonest first, and the accented ones of languages in Latin letters.
_RUSSIAN = "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё"
_UKRAINIAN = "оаинвіерткслудмпязьбгчйхцжїюшщєфґў"
_GREEK = "αοιετσνηυρπκμλςωδγχθφβξζψίόάήέύώϊϋΐΰ"
_WESTERN = ("äöüß", "éèàçêîôûùâëïœ", "áéíóúñü", "áâãàéêíóôõúç", "àèéìòù", "åäöøæé", "éëïèöü", "áéíóúýæöðþ")
_CENTRAL = (
    "ąęółśżźćń", "áéíóúýčďěňřšťůž", "áäčďéíĺľňóôŕšťúýž", "áéíóúöőüű", "čšžćđ", "ăâîșțşţ",
)  # fmt: skip
_TURKISH = "çğıiöşüâî"
_MARKS = frozenset("“”‘’–—…•·©®™°±µ×÷§«»¿¡²³½€£\xa0")
_CJK_MARKS = frozenset("，。、；：？！（）《》「」『』【】〈〉〔〕·—…“”‘’～％　・〜")


_KANA = frozenset(chr(c) for c in (*range(0x3041, 0x3094), *range(0x30A1, 0x30F7), 0x30FC))


@dataclass(frozen=True)
class _Language:
    """`tiers` are characters and what each of them costs in nats, the cheapest first.

    `odd` matches what hardly stands in a word; what a match costs is added. `prior` is what it costs that a
    text is in this language at all.
    """

    tiers: tuple[tuple[Callable[[str], bool], float], ...]
    marks: frozenset[str] = _CJK_MARKS
    odd: re.Pattern[str] = re.compile(r"[a-zA-Z](?=[\u3040-\ud7ff][a-zA-Z])")  # one alone in a word
    prior: float = 0

    def price(self, char: str) -> float:
        if char < "\x7f":
            return 3.5 if char >= " " or char in "\n\r\t\x0c" else 16
        for holds, cost in self.tiers:
            if holds(char):
                return cost
        if char in self.marks:
            return 6
        category = unicodedata.category(char)
        if char == "\ufffd" or category in ("Cn", "Co", "Cs"):
            return 20
        return 16 if category == "Cc" else 14


def _rows(encoding: str, first: int, last: int) -> Callable[[str], bool]:
    """Whether a character is in the rows of a national standard that hold its common ones."""

    def within(char: str) -> bool:
        try:
            data = char.encode(encoding)
        except UnicodeEncodeError:
            return False
        return len(data) == 2 and first <= data[0] <= last

    return within


def _letters(letters: str, odd: re.Pattern[str], *, prior: float = 0) -> _Language:
    """A language of some accented letters among ASCII ones; capitals cost more, those of others much more."""
    own = frozenset(letters)
    return _Language(
        (
            (own.__contains__, 4.5),
            (lambda char: char.lower() in own, 6),
            (lambda char: char.isalpha() and unicodedata.name(char, "").startswith("LATIN"), 9),
        ),
        _MARKS, odd, prior,
    )  # fmt: skip


def _alphabet(letters: str, odd: re.Pattern[str], *, prior: float) -> _Language:
    """A language of letters that are all its own, the commonest first."""
    places = {letter: place for place, letter in enumerate(letters)}
    tiers = tuple(
        (frozenset(letters[first : first + 4]).__contains__, 2.4 + 0.11 * first)
        for first in range(0, len(letters), 4)
    )
    return _Language((*tiers, (lambda char: char.lower() in places, 6.5)), _MARKS, odd, prior)


# Two accented letters together are rare; so are marks within words, and capitals after small letters.
_ODD_LATIN = re.compile(
    r"(?<![A-Z])[^\W\d_a-zA-Z](?=[^\W\d_a-zA-Z])"
    r"|[^\W\d_](?=[^\w\s\x00-\x7f’‘·–—\ufffd][^\W\d_])"
    r"|[a-z](?=[À-ÞĀĂĄĆČĎĐĘĚŁŃŇŐŘŚŠŤŮŰŹŻŽ])|[ß-öø-ÿāăąćčďđęěłńňőřśšťůűźżž](?=[A-Z])"
)
_PAIRS, _OTHERS = _ODD_LATIN.pattern.split("|", 1)
_ODD_WESTERN = re.compile(f"{_ODD_LATIN.pattern}|õ(?![eo])")  # or it is the Hungarian ő
_ODD_CENTRAL = re.compile(
    f"{_PAIRS}(?=..?[^\\W\\d_a-zA-Z])|{_OTHERS}"
)  # where pairs of accented ones are common
# Scripts do not mix in a word, and words of one letter are few.
_ODD_CYRILLIC = re.compile(r"[a-zA-Z](?=[Ѐ-ӿ])|[Ѐ-ӿ](?=[a-zA-Z])|[а-џ](?=[Ѐ-Я])|(?<![^\W_])[Ѐ-ӿ](?![^\W_])")
_ODD_GREEK = re.compile(
    r"[a-zA-Z](?=[Ͱ-Ͽ])|[Ͱ-Ͽ](?=[a-zA-Z])|[ά-ώ](?=[Ά-Ϋ])"
    r"|ς(?=[ά-ώ])|σ(?![ά-ώ])"
)
_LANGUAGES = {
    "simplified": _Language(((_SIMPLIFIED.__contains__, 6), (_rows("gb2312", 0xB0, 0xD7), 9))),
    "traditional": _Language(((_TRADITIONAL.__contains__, 6), (_rows("big5", 0xA4, 0xC6), 9))),
    # Few Japanese texts are without kana: kanji cost more than the same characters in Chinese.
    "japanese": _Language(
        ((_KANA.__contains__, 5), (_KANJI.__contains__, 6.8), (_rows("euc_jp", 0xB0, 0xCF), 9.8))
    ),
    "korean": _Language(((_HANGUL.__contains__, 5.8), (_rows("euc_kr", 0xB0, 0xC8), 8.5))),
    **{f"western {letters}": _letters(letters, _ODD_WESTERN) for letters in _WESTERN},
    **{f"central {letters}": _letters(letters, _ODD_CENTRAL, prior=1.5) for letters in _CENTRAL},
    "turkish": _letters(_TURKISH, _ODD_LATIN, prior=1.5),
    "russian": _alphabet(_RUSSIAN, _ODD_CYRILLIC, prior=4),
    "ukrainian": _alphabet(_UKRAINIAN, _ODD_CYRILLIC, prior=5),
    "greek": _alphabet(_GREEK, _ODD_GREEK, prior=4),
}


def _named(start: str) -> tuple[str, ...]:
    return tuple(name for name in _LANGUAGES if name.startswith(start))


_BYTES = (
    ("cp1252", _named("western")), ("cp1250", _named("central")), ("iso8859-2", _named("central")),
    ("cp1251", ("russian", "ukrainian")), ("koi8-r", ("russian",)), ("koi8-u", ("ukrainian",)),
    ("cp866", ("russian",)), ("iso8859-5", ("russian",)), ("cp1253", ("greek",)), ("iso8859-7", ("greek",)),
    ("cp1254", ("turkish",)),
    ("gb18030", ("simplified", "traditional")), ("big5hkscs", ("traditional",)), ("cp932", ("japanese",)),
    ("euc_jp", ("japanese",)), ("cp949", ("korean",)),
)  # fmt: skip
_WIDE = tuple(
    (encoding, tuple(_LANGUAGES)) for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
)
# The standards that are named, and used, where they suffice: their extensions hold a few more characters.
_NARROWER = {
    "gb18030": ("gbk",), "cp932": ("shift_jis",), "cp949": ("euc_kr",), "big5hkscs": ("big5", "cp950"),
}  # fmt: skip
_ODD_COST = 4.5


@dataclass(frozen=True)
class Guess:
    """The likeliest encoding, and how many nats a byte of the text costs in it."""

    encoding: str
    cost: float

    @property
    def plausible(self) -> bool:
        return self.cost < (_TOO_DEAR / 2 if self.encoding.startswith("utf-32") else _TOO_DEAR)


def guess(data: bytes, *, wide_only: bool = False) -> Guess:
    """The encoding that explains `data` best; with `wide_only`, of UTF-16 and UTF-32."""
    sample = _sample(data)
    candidates = [c for c in _WIDE if len(sample) >= 8] if wide_only or sample == data[:_SAMPLE] else []
    if not wide_only:
        candidates = [("utf-8", tuple(_LANGUAGES)), *_BYTES, *candidates]
    found = [Guess(encoding, _price(sample, encoding, languages)) for encoding, languages in candidates]
    best = min(found, key=lambda g: g.cost, default=Guess("", float("inf")))
    for narrower in _NARROWER.get(best.encoding, ()):
        try:
            data.decode(narrower)
        except UnicodeDecodeError:
            continue
        return Guess(narrower, best.cost)
    return best


def _sample(data: bytes) -> bytes:
    """The beginning, or where that is all ASCII the lines that are not."""
    start = data[:_SAMPLE]
    if len(data) <= _SAMPLE or not start.isascii():
        return start
    lines: list[bytes] = []
    size = 0
    for line in re.finditer(rb"[^\n]*[\x80-\xff][^\n]*\n?", data):
        lines.append(line[0][:_SAMPLE])
        size += len(lines[-1])
        if size >= _SAMPLE:
            break
    return b"".join(lines)


def _price(sample: bytes, encoding: str, languages: tuple[str, ...]) -> float:
    """Nats a byte in the language in which it is cheapest."""
    if not sample:
        return float("inf")
    try:  # hardly anything but UTF-32 decodes as UTF-32
        text = sample.decode(encoding, "strict" if encoding.startswith("utf-32") else "replace")
    except UnicodeDecodeError:
        return float("inf")
    counts = Counter(text)
    prices = []
    for name in languages:
        price = _LANGUAGES[name].prior + sum(n * _character(name, char) for char, n in counts.items())
        price += _ODD_COST * sum(1 for _ in _LANGUAGES[name].odd.finditer(text))
        prices.append(price)
    return min(prices) / len(sample)


@cache
def _character(language: str, char: str) -> float:
    return _LANGUAGES[language].price(char)

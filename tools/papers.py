"""Papers cited in the notebooks, with the URLs that the book links to."""

import re

ARXIV = "https://arxiv.org/abs/"
OPENAI = "https://cdn.openai.com/better-language-models"
# URL to citations: authors and year, or title.
PAPERS = {
    f"{ARXIV}1701.06538": "Shazeer et al. 2017",
    f"{ARXIV}1609.08144": "Wu et al. 2016",
    f"{ARXIV}1706.03762": "Vaswani et al. 2017|*Attention Is All You Need*",
    f"{ARXIV}1607.06450": "Ba, Kiros and Hinton 2016",
    f"{ARXIV}1412.6980": "Kingma and Ba 2014",
    f"{ARXIV}1502.03167": "Ioffe and Szegedy 2015",
    f"{ARXIV}1503.02531": "Hinton et al. 2015",
    f"{ARXIV}1211.5063": "Pascanu, Mikolov and Bengio 2013",
    f"{ARXIV}1508.07909": "Sennrich, Haddow and Birch 2016",
    f"{ARXIV}1512.03385": "He et al. 2015|*Deep Residual Learning for Image Recognition*",
    f"{ARXIV}1606.08415": "Hendrycks and Gimpel 2016",
    f"{ARXIV}1810.04805": "Devlin et al. 2019",
    f"{ARXIV}1506.02438": "Schulman et al. 2015",
    f"{ARXIV}1707.06347": "Schulman et al. 2017",
    f"{ARXIV}1711.05101": "Loshchilov and Hutter 2017",
    f"{ARXIV}1805.02867": "Milakov and Gimelshein 2018",
    f"{ARXIV}1805.04833": "Fan et al. 2018",
    f"{ARXIV}1904.09751": "Holtzman et al. 2020",
    f"{ARXIV}1910.07467": "Zhang and Sennrich 2019",
    f"{ARXIV}1910.13461": "Lewis et al. 2020",
    f"{ARXIV}1911.02150": "Shazeer 2019",
    f"{ARXIV}2002.04745": "Xiong et al. 2020"
    "|*On Layer Normalization in the Transformer Architecture*",
    f"{ARXIV}2002.05202": "*GLU Variants Improve Transformer*",
    f"{ARXIV}2101.03961": "Fedus et al. 2021",
    f"{ARXIV}2004.05150": "Beltagy et al. 2020",
    f"{ARXIV}2104.09864": "Su et al. 2021",
    f"{ARXIV}2106.09685": "Hu et al. 2021",
    f"{ARXIV}2108.12409": "Press, Smith and Lewis 2022",
    f"{ARXIV}2203.02155": "Ouyang et al. 2022",
    f"{ARXIV}2205.14135": "Dao et al. 2022",
    f"{ARXIV}2208.07339": "Dettmers et al. 2022",
    f"{ARXIV}2302.13971": "Touvron et al. 2023",
    f"{ARXIV}2305.13245": "Ainslie et al. 2023",
    f"{ARXIV}2401.04088": "Jiang et al. 2024",
    f"{ARXIV}2305.18290": "Rafailov et al. 2023",
    f"{ARXIV}2402.03300": "Shao et al. 2024",
    f"{ARXIV}2503.14476": "Yu et al. 2025",
    f"{ARXIV}2503.20783": "Liu et al. 2025",
    f"{ARXIV}2306.08543": "Gu et al. 2023",
    f"{ARXIV}2405.04434": "DeepSeek-AI 2024",
    f"{ARXIV}2211.17192": "Leviathan et al. 2023",
    f"{ARXIV}2302.01318": "Chen et al. 2023",
    f"{ARXIV}2310.06825": "Jiang et al. 2023",
    "https://proceedings.mlr.press/v9/glorot10a.html": "Glorot and Bengio 2010",
    f"{OPENAI}/language_models_are_unsupervised_multitask_learners.pdf": "Radford et al. 2019"
    "|*Language Models are Unsupervised Multitask Learners*",
}  # fmt: skip
_YEAR = re.compile(r"\\ (\d{4})")


def linked(text: str) -> str:
    """Link each citation in a text, such as "He et al., 2015" or "He et al. (2015)".

    Args:
        text: Markdown.
    """
    for address, names in PAPERS.items():
        cited = _YEAR.sub(r"(?:, \1| \\(\1\\))", "|".join(map(re.escape, names.split("|"))))
        text = re.sub(cited, lambda citation, to=address: f"[{citation[0]}]({to})", text)
    return text

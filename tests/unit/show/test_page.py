"""The page in a real browser: what a person sees is what the run saved."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rollplex.api.errors import JobError
from rollplex.show import show
from tests.unit.show.texts import HOSTILE, TEXTS


def chromium(page: Path, profile: Path, *options: str) -> str:
    """Open a page in a headless browser of its own profile; its standard output."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "this test looks at the page in a browser: apt-get install -y chromium"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    flags += [f"--user-data-dir={profile}", "--hide-scrollbars", *options, page.as_uri()]
    return subprocess.run([program, *flags], check=True, capture_output=True, text=True, timeout=120).stdout


@dataclass
class Element:
    """A part of the document with all its text."""

    tag: str
    attributes: dict[str, str | None]
    text: str = ""
    inside: list[Element] = field(default_factory=list)

    def all(self, tag: str, kind: str = "") -> list[Element]:
        """The parts below with this tag, and this class if given, in order."""
        found = []
        for part in self.inside:
            if part.tag == tag and (not kind or kind in (part.attributes.get("class") or "").split()):
                found.append(part)
            found += part.all(tag, kind)
        return found

    def one(self, tag: str, kind: str = "") -> Element:
        (found,) = self.all(tag, kind)
        return found


class Document(HTMLParser):
    """A browser's dump of its document is well-formed, so a stack is enough."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open = [Element("", {})]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        part = Element(tag, dict(attrs))
        self.open[-1].inside.append(part)
        if tag not in ("meta", "img", "link", "br"):
            self.open.append(part)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for part in self.open:
            part.text += data


@pytest.fixture(scope="module")
def document(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Element:
    path = show(run_folder)
    assert path == run_folder / "show-step-000005.html"
    return Document(chromium(path, tmp_path_factory.mktemp("profile"), "--dump-dom")).open[0]


def test_page_shows_the_newest_step_and_the_runs_numbers(document: Element) -> None:
    assert document.one("h1").text == "film step 5 of 9"
    facts = {part.one("dt").text: part.one("dd").text for part in document.one("dl").all("div")}
    assert facts == {
        "algorithm": "grpo",
        "prompts × responses": "3 × 4",
        "mean reward": "0.5",
        "rewards": "0 to 1",
        "loss": "0.5",
    }
    points = document.one("polyline").attributes["points"]
    assert points is not None
    assert len(points.split()) == 5
    assert document.one("head").one("title").text == "film · step 5"
    assert document.one("circle").text == "step 4: held-out 0.750"
    assert document.all("p", "note") == []


def test_page_shows_prompts_as_the_model_saw_them(document: Element) -> None:
    groups = document.all("section")
    assert [group.one("h2").text.split("  ")[0].split(" ")[0] for group in groups] == [
        "film",
        "<i>picture</i>",
        "words",
    ]
    users = [next(turn for turn in group.all("div", "turn") if turn.one("b").text == "user") for group in groups]
    assert [group.one("div", "right").text for group in groups] == ["answerred", 'answer["red", 2]', "answerred"]
    assert [turn.one("p").text for turn in users] == ["video What colour is it?", f"{HOSTILE}image ", "Say nothing."]


def test_page_shows_every_frame(document: Element) -> None:
    film, picture, words = document.all("section")
    assert len(film.all("img")) == 4
    assert "video · 84 × 84 · 4 frames" in film.one("figcaption").text
    assert "videos/0001.mp4" in film.one("figcaption").text
    assert len(picture.all("img")) == 1
    assert "image · 112 × 56 · " in picture.one("figcaption").text
    assert words.all("img") == []


def test_page_shows_responses_with_rewards_and_advantages(document: Element) -> None:
    film = document.all("section")[0].all("li")
    assert [answer.one("pre").text for answer in film] == [text or "empty" for text in TEXTS]
    assert [answer.one("span", "reward").text for answer in film] == ["0", "0.333", "0.667", "1"]
    assert [answer.one("span", "advantage").text for answer in film] == [
        "advantage −1.5",
        "advantage −0.5",
        "advantage +0.5",
        "advantage +1.5",
    ]
    assert film[1].one("span", "parts").text == "exact 0.333 · length 0"
    assert [answer.one("div", "end").text for answer in film] == [
        "1 token · ended by '##'",
        "2 tokens · ended by '##'",
        "3 tokens · ended by '##'",
        "4 tokens · ended by maxTokens",
    ]
    assert [answer.attributes["style"] for answer in film] == [f"--hue: {hue}" for hue in (8, 54, 99, 145)]


def test_page_runs_nothing_and_loads_nothing(document: Element) -> None:
    """What the policy and the dataset wrote stays text, and the page needs no other file."""
    assert document.all("script") == []
    assert document.all("i", "") == document.one("nav").all("i")
    sources = [image.attributes["src"] or "" for image in document.all("img")]
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert document.all("link") == []


def test_page_looks_like_a_page(run_folder: Path, tmp_path: Path) -> None:
    """A screenshot has the picture's red half as the decoder gives it, and no stretch of it is blank."""
    page = show(run_folder, out=tmp_path / "deep" / "page.html")
    picture = tmp_path / "page.png"
    # pictures are decoded beside the drawing: the shot waits for them
    drawn = ("--run-all-compositor-stages-before-draw", "--virtual-time-budget=10000")
    chromium(page, tmp_path / "profile", f"--screenshot={picture}", "--window-size=1280,1100", *drawn)
    shot = np.asarray(Image.open(picture).convert("RGB"))
    assert shot.shape == (1100, 1280, 3)
    red = int(((shot[..., 0] > 240) & (shot[..., 1:] < 20).all(-1)).sum())
    assert 0.8 * 56 * 56 <= red <= 1.2 * 160 * 80  # at its own size or enlarged to a legible one
    for top in range(0, 1100, 220):
        colours = np.unique(shot[top : top + 220].reshape(-1, 3), axis=0)
        assert len(colours) > 20, f"nothing below {top}"


def test_page_of_an_earlier_step_and_of_fewer_prompts(run_folder: Path, tmp_path: Path) -> None:
    text = show(run_folder, step=4, out=tmp_path / "page.html", prompts=1).read_text()
    assert "step 4 of 9" in text
    assert text.count("<pre>earlier</pre>") == 4
    assert "The first 1 of 3 prompts are shown; --prompts shows more." in text


def test_page_says_what_is_gone_and_shows_the_rest(run_folder: Path, tmp_path: Path) -> None:
    job = (run_folder / "job.yaml").read_text()
    copy = tmp_path / "moved"
    shutil.copytree(run_folder, copy)
    (copy / "job.yaml").write_text(job.replace("three.jsonl", "gone.jsonl").replace("/model\n", "/gone\n"))
    text = show(copy).read_text()
    assert "The prompts&#39; text is not shown: " in text
    assert "gone.jsonl does not exist" in text
    assert text.count('class="response"') == 12
    assert "<img" not in text


def test_page_names_a_medium_that_does_not_decode(run_folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(run_folder.parents[1] / "data", data)
    (data / "red.png").write_bytes(b"not a picture")
    rows = (data / "three.jsonl").read_text().splitlines(keepends=True)
    (data / "three.jsonl").write_text(rows[0] + rows[1])
    copy = tmp_path / "run"
    shutil.copytree(run_folder, copy)
    (copy / "job.yaml").write_text((run_folder / "job.yaml").read_text().replace(str(data.parents[0]), "").replace(
        f"{run_folder.parents[1]}/data", str(data)
    ))  # fmt: skip
    text = show(copy).read_text()
    assert "red.png: unreadable (" in text
    assert text.count("<img src=") == 4
    assert "1 of these prompts are no longer in" in text


@pytest.mark.parametrize(
    ("run", "step", "message"),
    [
        ("nowhere", None, r"^nowhere: is no run folder \(with a job.yaml\), and neither is runs/nowhere$"),
        (None, 6, "^--step: 6 is not saved; there are 2 steps from 4 to 5$"),
    ],
)
def test_show_refuses_what_is_not_there(run_folder: Path, run: str | None, step: int | None, message: str) -> None:
    with pytest.raises(JobError, match=message):
        show(run or run_folder, step)


def test_show_takes_a_runs_name(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run_folder.parents[1])
    assert show("film", prompts=1) == Path("runs/film/show-step-000005.html")


def test_show_refuses_a_run_without_a_step(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    shutil.copy(run_folder / "job.yaml", tmp_path)
    with pytest.raises(JobError, match="no step of this run is complete yet"):
        show(tmp_path)

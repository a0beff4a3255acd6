"""Texts of prompts and responses that a page must show as text."""

HOSTILE = "</p><script>document.title = 'owned'</script> <|video_pad|> & {{ 7 * 7 }}"
TEXTS = ("red", "", "<img src=x onerror=alert(1)>\n  two  spaces", "é 漢 \ufffd &amp; <b>bold</b>")

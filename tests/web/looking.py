"""What is asked of every page: nothing of a stranger runs, nothing is too wide, all can be read."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Dialog, Locator, Page, ViewportSize

PHONE: ViewportSize = {"width": 390, "height": 844}


def watch_dialogs(page: Page) -> list[str]:
    """The dialogs that come up from now on; none should."""
    seen: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        seen.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    return seen


def follow(page: Page, link: Locator) -> None:
    """Click what leads to another page, and be there: a click alone does not wait for it."""
    with page.expect_navigation():
        link.click()


def is_too_wide(page: Page) -> bool:
    """Whether the page must be pushed aside to be read."""
    return bool(
        page.evaluate(
            "document.scrollingElement.scrollWidth > document.scrollingElement.clientWidth"
        )
    )


def find_barriers(page: Page) -> str:
    """What axe finds in the way of whoever cannot see the page; empty where there is nothing."""
    found = Axe().run(page)
    return "" if found.violations_count == 0 else found.generate_report()

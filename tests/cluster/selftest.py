"""x"""

from cluster import layout
from cluster.progress import Progress


def run(where: layout.Layout, progress: Progress) -> None: ...

"""From the checkout to three images: heavy layers from the cache, thin ones built by buildah."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from images import assemble, base, buildah, inputs, layout, packages, sweep
from local import environment, locks, paths, steps

REGISTRY = "localhost"
NOTHING = "localhost/firsttoken/nothing:1"
CODE = "localhost/firsttoken/code:latest"
RUNROOT = Path("/run/firsttoken-images")
LOCK_TIMEOUT_S = 1800.0
ATTEMPTS = 3


@dataclass(frozen=True)
class Built:
    """Three images under one tag, in the layout of the cache."""

    tag: str
    store: layout.Layout
    manifests: Mapping[str, layout.Blob]  # role -> manifest
    images: Mapping[str, layout.Image]

    def reference(self, role: str) -> str:
        return f"{REGISTRY}/firsttoken/{role}:{self.tag}"


@dataclass(frozen=True)
class Workshop:
    """What every part of a build needs."""

    where: paths.Paths
    report: steps.Report
    processes: steps.Processes

    @property
    def folder(self) -> Path:
        return self.where.cache / "images"

    @property
    def store(self) -> layout.Layout:
        return layout.Layout(self.folder / "layout")

    @property
    def builder(self) -> buildah.Buildah:
        return buildah.Buildah(
            self.folder / "storage", RUNROOT, self.where.steps / "images.log", self.processes
        )


def prepare(shop: Workshop, uv: Path) -> dict[str, layout.Image]:
    """The base image and the heavy layers, made when they are not in the cache; role -> image of packages."""
    with locks.exclusive(shop.where.cache / "locks" / "images", LOCK_TIMEOUT_S):
        shop.builder.discard_containers()
        base.ensure(shop.builder, shop.folder / "scratch", shop.report, shop.processes)
        return {
            role: packages.ensure(role, shop.where.checkout, shop.store, shop.builder, uv, shop.report)
            for role in inputs.ROLES
        }


def build(shop: Workshop) -> Built:
    """All three images of the code as it is now. Seconds when only the code has changed."""
    heavy = prepare(shop, environment.ensure_uv(shop.where, shop.report, shop.processes))
    with locks.exclusive(shop.where.cache / "locks" / "images", LOCK_TIMEOUT_S):
        tag, thin = _thin_of_all(shop)
        sweep.old_packages(shop.folder / "packages")
    images = {role: assemble.over(heavy[role], thin[role]) for role in inputs.ROLES}
    store = shop.store
    manifests = {
        role: store.write(assemble.manifest(image, store.write(image.config)))
        for role, image in images.items()
    }
    return Built(tag, store, manifests, images)


def _thin_of_all(shop: Workshop) -> tuple[str, dict[str, layout.Image]]:
    """The tag and our code for every role, built again when a file is saved meanwhile."""
    root = shop.where.checkout
    for _ in range(ATTEMPTS):
        keys = [inputs.packages_key(root, role, base.key()) for role in inputs.ROLES]
        tag = inputs.tag(root, keys)
        found = {role: _recorded(shop, role, tag) for role in inputs.ROLES}
        if not all(found.values()):
            _build_thin(shop, tag)
        if inputs.tag(root, keys) == tag:
            return tag, {
                role: layout.image_from_json(_record(shop, role, tag).read_text()) for role in inputs.ROLES
            }
        for role in inputs.ROLES:
            _record(shop, role, tag).unlink()
    raise steps.StepError(f"the code has changed {ATTEMPTS} times while it was built")


def _record(shop: Workshop, role: str, tag: str) -> Path:
    return shop.folder / "code" / f"{role}-{tag}.json"


def _recorded(shop: Workshop, role: str, tag: str) -> bool:
    """Whether the thin image of that tag is in the layout; notes that it was used."""
    record = _record(shop, role, tag)
    if not record.exists():
        return False
    record.touch()
    layers = layout.image_from_json(record.read_text()).layers
    return all(shop.store.blob(layer.blob.digest).exists() for layer in layers)


def _build_thin(shop: Workshop, tag: str) -> None:
    """Our code for every role: the stage `code`, then each Dockerfile's last stage on nothing."""
    root, arguments = shop.where.checkout, {"BASE": base.name()}
    with shop.report.step("our code"):
        dockerfile = root / inputs.DOCKERFILES["operator"]
        shop.builder.build(root, dockerfile, CODE, "code", arguments, fixed_times=True)
        _ensure_nothing(shop)
    for role in inputs.ROLES:
        with shop.report.step(f"thin layer of the {role} image"):
            name = f"localhost/firsttoken/{role}:latest"
            stages = {f"{role}-dependencies": NOTHING, "code": CODE}
            dockerfile = root / inputs.DOCKERFILES[role]
            shop.builder.build(
                root, dockerfile, name, role, arguments, stages, fixed_times=True, cached=False
            )
            shop.builder.push(name, shop.store.folder, f"{role}-{tag}")
        record = _record(shop, role, tag)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(shop.store.image(f"{role}-{tag}").to_json())


def _ensure_nothing(shop: Workshop) -> None:
    """An image without a file, which stands in for the heavy layers while a thin one is built."""
    if shop.builder.has(NOTHING):
        return
    context = shop.folder / "scratch" / "nothing"
    context.mkdir(parents=True, exist_ok=True)
    dockerfile = context / "Dockerfile"
    dockerfile.write_text("FROM scratch\nLABEL firsttoken.nothing=1\n")
    shop.builder.build(context, dockerfile, NOTHING, fixed_times=True)

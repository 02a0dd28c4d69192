"""`Section`: a part of the settings, a dict read by attribute, and what a class of them declares.

A class of settings is the only place where its settings stand: each is a field with type, default, allowed values and
meaning. A subclass has the settings of its bases and adds others. It may change a default (``gamma = 0.95``), a meaning
(``gamma: float = setting(doc="...")``) and defaults of a section in it (`section`). A setting that an algorithm lacks
is not a field of its class. What code may take for it is a plain value of a base (``nstep: int = 1``).
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from minding.engine.config.options import Declared, Option
from minding.engine.errors import ConfigError, nearest

if TYPE_CHECKING:
    from minding.engine.config.config import Config

    EasyDict = dict[str, object]
else:
    from easydict import EasyDict


class Changed(dict[str, Any]):
    """Other defaults of a section, see `section`."""


def section(**defaults: Any) -> Any:
    """Declares a section as a field that has other defaults than its class: ``eps: Eps = section(decay=50_000)``. In a
    class whose base has the section, the annotation may be left out. Like that of `setting`, the result is `Any` for
    type checkers."""
    return Changed(defaults)


class Section(EasyDict):
    """A part of the settings: an EasyDict, a dict whose keys are also attributes.

    Mappings in it, also those in lists, are sections. Other than in a plain EasyDict, a value is held only once, and an
    unknown attribute is an AttributeError with the nearest key.
    """

    _own: ClassVar[Mapping[str, object]] = {}
    _fields: ClassVar[Mapping[str, Option | type[Section]]] = {}
    _absent: ClassVar[Mapping[str, object]] = {}

    def __init__(self, settings: Mapping[str, object] | None = None, /, **more: object) -> None:
        # EasyDict's own would add the methods of the class as settings.
        dict.__init__(self)
        self.update({**(settings or {}), **more})

    def __init_subclass__(cls) -> None:
        annotated = vars(cls).get("__annotations__", {})
        values = {key: value for key, value in vars(cls).items() if key[0] != "_" and not hasattr(value, "__get__")}
        for key in values:
            # An attribute of the class would hide the item of that name.
            delattr(cls, key)
        own: dict[str, object] = {}
        for key in dict.fromkeys((*annotated, *values)):
            value = values.get(key)
            kind = _named(annotated[key], cls) if key in annotated and isinstance(value, Changed | None) else None
            if isinstance(kind, type) and issubclass(kind, Section):
                own[key] = _changed(kind, value) if value else kind
            elif key in values:
                own[key] = value
        cls._own = own
        fields: dict[str, Any] = {}
        absent: dict[str, object] = {}
        for base in reversed(cls.__mro__):
            for key, value in vars(base).get("_own", {}).items():
                if isinstance(value, Declared):
                    fields[key] = value.option(base.__annotations__.get(key, ""), fields.get(key))
                elif isinstance(value, type):
                    fields[key] = value
                elif isinstance(value, Changed):
                    fields[key] = _changed(fields[key], value)
                elif key in fields:
                    fields[key] = Declared(value).option("", fields[key])
                elif key in base.__annotations__:
                    absent[key] = value
                else:
                    raise ConfigError(f"{cls.__name__}.{key}: its bases declare no such setting{nearest(key, fields)}")
        cls._fields, cls._absent = fields, absent

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The schema of the section: an `Option` for each setting by key; sections in it are nested dicts."""
        return {key: field if isinstance(field, Option) else field.options() for key, field in cls._fields.items()}

    def __setitem__(self, key: str, value: object) -> None:
        # EasyDict's own would hold the value as an attribute as well.
        kind = type(self)._fields.get(key, Section)
        dict.__setitem__(self, key, _sections(value, kind if isinstance(kind, type) else Section))

    def update(self, *settings: Mapping[str, object], **more: object) -> None:  # type: ignore[override]
        for each in (*settings, more):
            for key, value in each.items():
                self[key] = value

    def setdefault(self, key: str, default: object = None) -> object:
        if key not in self:
            self[key] = default
        return self[key]

    pop = dict.pop

    def copy(self) -> Section:
        """A shallow copy of this section: it shares the sections in it."""
        return type(self)(self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    if not TYPE_CHECKING:
        # To type checkers a section has the keys that it declares.

        def __getattr__(self, name):
            if name in self:
                return self[name]
            if name in type(self)._absent:
                return type(self)._absent[name]
            hint = nearest(name, self) or f"; it has {', '.join(self) or 'none'}"
            raise AttributeError(f"the settings have no key {name!r} here{hint}", name=name, obj=self)

        def __setattr__(self, name, value):
            self[name] = value

        def __delattr__(self, name):
            if name not in self:
                raise AttributeError(f"the settings have no key {name!r} here", name=name, obj=self)
            del self[name]


class OpenSection(Section):
    """A section that may hold further keys, which belong to a single algorithm or environment; to type checkers each
    is an `object`."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> object: ...

        def __setattr__(self, name: str, value: object) -> None: ...


def _named(annotation: object, section: type) -> object:
    """What an annotation of a section names, if it is a class or the name of one."""
    if not isinstance(annotation, str):
        return annotation
    if not re.fullmatch(r"[A-Za-z][\w.]*", annotation):
        return None
    scope = {**vars(builtins), **getattr(sys.modules.get(section.__module__), "__dict__", {})}
    found = scope.get(annotation.partition(".")[0])
    for name in annotation.split(".")[1:]:
        found = getattr(found, name, None)
    if found is None:
        raise ConfigError(f"{section.__name__}: there is no class {annotation!r} above it")
    return found


def _sections(value: object, kind: type[Section] = Section) -> object:
    if isinstance(value, Mapping) and not isinstance(value, kind):
        return kind(value)
    if type(value) is list or type(value) is tuple:
        return type(value)(_sections(each) for each in value)
    return value


def _changed(kind: type[Section], defaults: Mapping[str, object]) -> type[Section]:
    """A section with other defaults."""
    return type(kind.__name__, (kind,), {**defaults, "__module__": kind.__module__})


def check_section(kind: type[Section], settings: Any, cfg: Config) -> None:
    """Checks the conditions of a class of settings, of its bases, and of the sections in it. A condition is a method
    ``check(self, cfg)`` of the class that declares the settings; it does not call that of the base."""
    for base in reversed(kind.__mro__):
        if "check" in vars(base):
            vars(base)["check"](settings, cfg)
    for key, field in kind._fields.items():
        if not isinstance(field, Option):
            check_section(field, settings[key], cfg)

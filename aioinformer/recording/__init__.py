"""Recordings of what informers receive, and their replay.

    record      records the informers of a factory into a file, or in memory
    replay      plays a recording to informers
    Digest      digest of what a handler is told, to compare two runs

Rule of this layer: it uses informers like any other program, and none of them knows it.
"""

from aioinformer.recording.playback import Digest, Replay, ReplaySource, replay
from aioinformer.recording.reading import Change, Happening
from aioinformer.recording.recorder import Recorder, record

__all__ = [
    "Change",
    "Digest",
    "Happening",
    "Recorder",
    "Replay",
    "ReplaySource",
    "record",
    "replay",
]

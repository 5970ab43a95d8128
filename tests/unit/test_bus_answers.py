"""A repeated call is not carried out again; an answer that arrived is forgotten."""

from pisub.client.bus_answers import Acknowledgements, AnswerCache, Seen
from pisub.protocol.limits import KEEP_ANSWER_S

KEY = ("asker", 1, 7)


def test_a_repeat_gets_the_answer_that_was_given() -> None:
    cache = AnswerCache()
    assert cache.begin(KEY, ttl_ms=0, now=0.0) is Seen.NEW
    assert cache.begin(KEY, ttl_ms=0, now=0.0) is Seen.RUNNING
    cache.finish(KEY, b"answer")
    assert cache.begin(KEY, ttl_ms=0, now=2.0) == b"answer"
    assert (len(cache), cache.running) == (1, 0)


def test_another_life_of_the_same_caller_is_another_caller() -> None:
    cache = AnswerCache()
    cache.begin(KEY, ttl_ms=0, now=0.0)
    cache.finish(KEY, b"answer")
    assert cache.begin(("asker", 2, 7), ttl_ms=0, now=0.0) is Seen.NEW


def test_an_answer_that_arrived_is_forgotten() -> None:
    cache = AnswerCache()
    cache.begin(KEY, ttl_ms=0, now=0.0)
    cache.finish(KEY, b"answer")
    cache.forget("asker", 1, [7, 8])
    assert len(cache) == 0
    assert cache.begin(KEY, ttl_ms=0, now=0.0) is Seen.NEW


def test_an_answer_outlives_its_call_s_deadline_by_a_minute() -> None:
    cache = AnswerCache()
    cache.begin(KEY, ttl_ms=1_000, now=0.0)
    cache.finish(KEY, b"answer")
    cache.begin(("asker", 1, 8), ttl_ms=0, now=1.0 + KEEP_ANSWER_S - 1.5)
    assert len(cache) == 1
    cache.begin(("asker", 1, 9), ttl_ms=0, now=1.0 + KEEP_ANSWER_S)
    assert len(cache) == 0


def test_the_oldest_answers_go_first_where_a_bound_is_reached() -> None:
    by_count, by_bytes = AnswerCache(max_answers=2), AnswerCache(max_bytes=10)
    for number in (1, 2, 3):
        for cache in (by_count, by_bytes):
            cache.begin(("a", 1, number), ttl_ms=0, now=0.0)
            cache.finish(("a", 1, number), b"12345")
    for cache in (by_count, by_bytes):
        assert len(cache) == 2
        assert cache.begin(("a", 1, 1), ttl_ms=0, now=0.0) is Seen.NEW
        assert cache.begin(("a", 1, 3), ttl_ms=0, now=0.0) == b"12345"


def test_arrived_answers_are_reported_together() -> None:
    arrived = Acknowledgements(count=4, after_s=1.0)
    arrived.tell_time(9.0)
    assert arrived.due_at is None
    assert not arrived.add("host@1", 5)
    assert not arrived.add("host@1", 6)
    arrived.tell_time(10.0)
    arrived.tell_time(10.5)
    assert not arrived.add("other@1", 7)
    assert arrived.due_at == 11.0
    assert arrived.add("host@1", 8)
    assert arrived.take_all() == {"host@1": [5, 6, 8], "other@1": [7]}
    assert arrived.due_at is None
    assert arrived.take_all() == {}

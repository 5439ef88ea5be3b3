"""Jobs: a store adds, reads, changes, removes them, and sets them aside."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.core.policy import Policy
from mainspring.core.run import Call
from mainspring.errors import ConflictingIdError, JobLookupError, TransientJobError, VersionConflict
from mainspring.jobstores.base import JobStore
from mainspring.testing.conformance.helpers import (
    LEASE,
    add_job,
    due_one,
    fire,
    make_job,
    other_work,
    reference,
    step,
    stored,
    work,
)

ODD_IDS = (
    "a",
    "A",
    "a ",
    " a",
    "ä",
    "å",
    "a:b",
    "{a}",
    "a@1@2",
    "%s",
    "?",
    "'; --",
    '"',
    "a/b",
    "a\\b",
    "a\nb",
    "日本",
)
"""Ids that a careless key, collation or quoting would confuse."""


class JobConformance:
    """Tests of how a store keeps jobs."""

    # -- add and look up ---------------------------------------------------------------------------------------

    def test_a_job_is_read_as_it_was_added(self, store: JobStore) -> None:
        policy = Policy(retries=3, backoff=(1.0, 5.5), timeout=30.0, retention=60.0, priority=7)
        call = Call(work, ("text", 1, 2.5, True, None), {"nested": {"list": [1, "two"]}}, "the name")
        fields: dict[str, Any] = {"executor": "pool", "queue": "mail", "misfire_grace_time": 1.5}
        fields |= {"coalesce": False, "max_instances": 4, "overlap": "queue", "late_after": 2.5, "down_after": 90.0}
        added = add_job(store, policy=policy, call=call, **fields)
        job = stored(store)
        assert reference(job.call.func) == reference(work)
        assert (job.args, dict(job.kwargs), job.name) == (call.args, call.kwargs, call.name)
        assert {name: getattr(job, name) for name in fields} == fields
        assert job.policy == policy
        assert job.trigger == added.trigger
        assert (job.at, job.nominal, job.version, job.incarnation) == (
            added.at,
            added.nominal,
            added.version,
            added.incarnation,
        )

    def test_a_store_keeps_a_lambda_or_refuses_it_by_name(self, store: JobStore) -> None:
        shared: list[int] = []
        job = make_job(store, call=Call(lambda items: items.append(1), (shared,), name="lambda"))
        if store.keeps_objects:
            store.add_job(job)
            kept = stored(store)
            kept.func(*kept.args)
            assert shared == [1]
        else:
            with pytest.raises(TransientJobError):
                store.add_job(job)
            assert store.get_all_jobs() == []

    def test_an_unknown_id_gives_none(self, store: JobStore) -> None:
        assert store.lookup_job("nobody") is None

    @pytest.mark.parametrize("many", [False, True])
    def test_a_taken_id_is_refused_and_the_job_there_stays(self, store: JobStore, many: bool) -> None:
        first = add_job(store, max_instances=1)
        second = make_job(store, max_instances=9)
        with pytest.raises(ConflictingIdError) as caught:
            store.add_jobs([second]) if many else store.add_job(second)
        assert caught.value.job_id == "job"
        assert (stored(store).max_instances, stored(store).version) == (1, first.version)

    def test_jobs_are_added_all_or_none(self, store: JobStore) -> None:
        add_job(store, "taken")
        with pytest.raises(ConflictingIdError):
            store.add_jobs([make_job(store, "new"), make_job(store, "taken"), make_job(store, "newer")])
        assert [job.id for job in store.get_all_jobs()] == ["taken"]

    def test_the_same_id_twice_in_a_batch_is_refused(self, store: JobStore) -> None:
        with pytest.raises(ConflictingIdError):
            store.add_jobs([make_job(store, "twin"), make_job(store, "twin")])
        assert store.get_all_jobs() == []

    def test_hundreds_of_jobs_are_added_at_once(self, store: JobStore) -> None:
        jobs = [make_job(store, f"job-{n:03}", due_in=n) for n in range(300)]
        store.add_jobs(jobs)
        assert [job.id for job in store.get_all_jobs()] == [job.id for job in jobs]
        assert len({job.version for job in jobs}) == 300

    def test_adding_no_jobs_is_allowed(self, store: JobStore) -> None:
        store.add_jobs([])
        assert store.get_all_jobs() == []

    def test_odd_ids_are_kept_apart(self, store: JobStore) -> None:
        for number, job_id in enumerate(ODD_IDS):
            add_job(store, job_id, max_instances=number + 1)
        assert [stored(store, job_id).max_instances for job_id in ODD_IDS] == list(range(1, len(ODD_IDS) + 1))
        for job_id in ODD_IDS:
            store.remove_job(job_id)
            assert store.lookup_job(job_id) is None
        assert store.get_all_jobs() == []

    def test_the_longest_id_and_its_neighbour_are_kept_apart(self, store: JobStore) -> None:
        ids = ["x" * 254 + end for end in "yz"]
        for job_id in ids:
            add_job(store, job_id)
        assert [stored(store, job_id).id for job_id in ids] == ids

    # -- versions and incarnations -----------------------------------------------------------------------------

    def test_adding_stamps_the_version_and_the_incarnation_that_are_stored(self, store: JobStore) -> None:
        job = add_job(store)
        assert job.version > 0
        assert (stored(store).version, stored(store).incarnation) == (job.version, job.incarnation)

    def test_every_write_makes_a_version_never_seen_before(self, store: JobStore) -> None:
        job = add_job(store)
        versions = [job.version]
        store.update_job(job)
        versions.append(job.version)
        assert stored(store).version == job.version
        store.add_jobs([job], replace=True)
        versions.append(job.version)
        assert store.fire([step(store, job, next_in=-1)], LEASE) == [()]
        versions.append(stored(store).version)
        store.remove_job("job")
        versions.append(add_job(store).version)
        assert len(set(versions)) == len(versions)

    def test_an_id_added_again_is_a_new_incarnation(self, store: JobStore) -> None:
        first = add_job(store)
        store.remove_job("job")
        second = add_job(store)
        assert second.incarnation != first.incarnation
        assert stored(store).incarnation == second.incarnation

    def test_all_incarnations_differ_after_everything_is_removed(self, store: JobStore) -> None:
        first = add_job(store)
        store.remove_all_jobs()
        second = add_job(store)
        assert first.incarnation != second.incarnation
        assert first.version != second.version

    # -- replace, update, remove -------------------------------------------------------------------------------

    def test_replacing_keeps_the_incarnation_and_changes_the_rest(self, store: JobStore) -> None:
        first = add_job(store, max_instances=1)
        second = make_job(store, due_in=30, max_instances=5, call=Call(other_work, (1,), name="other"))
        store.add_jobs([second], replace=True)
        job = stored(store)
        assert (second.incarnation, job.incarnation) == (first.incarnation, first.incarnation)
        assert (job.max_instances, job.args, job.name, job.at) == (5, (1,), "other", second.at)
        assert job.version == second.version != first.version

    def test_replacing_adds_what_is_not_there(self, store: JobStore) -> None:
        add_job(store, "old")
        store.add_jobs([make_job(store, "old"), make_job(store, "new")], replace=True)
        assert sorted(job.id for job in store.get_all_jobs()) == ["new", "old"]

    def test_a_version_read_before_a_replace_is_refused(self, store: JobStore) -> None:
        add_job(store)
        read, due = stored(store), due_one(store)
        store.add_jobs([make_job(store, max_instances=3)], replace=True)
        with pytest.raises(VersionConflict):
            store.update_job(read)
        assert fire(store, due) is None
        assert stored(store).max_instances == 3

    def test_an_update_is_stored_and_stamped(self, store: JobStore) -> None:
        before = add_job(store)
        job = stored(store)
        job.max_instances, job.coalesce = 8, False
        store.update_job(job)
        now = stored(store)
        assert (now.max_instances, now.coalesce) == (8, False)
        assert now.version == job.version != before.version
        assert now.incarnation == job.incarnation == before.incarnation

    def test_of_two_updates_read_at_the_same_version_the_first_wins(self, store: JobStore) -> None:
        add_job(store)
        mine, theirs = stored(store), stored(store)
        mine.max_instances, theirs.max_instances = 2, 3
        store.update_job(mine)
        with pytest.raises(VersionConflict) as caught:
            store.update_job(theirs)
        assert caught.value.job_id == "job"
        assert (stored(store).max_instances, stored(store).version) == (2, mine.version)

    def test_an_update_by_a_job_made_anew_replaces_the_stored_one(self, store: JobStore) -> None:
        """Do as APScheduler's stores do, whatever has happened to the job in the meantime."""
        first = add_job(store, misfire_grace_time=1)
        store.update_job(stored(store))
        anew = make_job(store, misfire_grace_time=7)
        store.update_job(anew)
        found = stored(store)
        assert found.misfire_grace_time == 7
        assert (found.version, found.incarnation) == (anew.version, first.incarnation)
        with pytest.raises(JobLookupError):
            store.update_job(make_job(store, "unknown"))

    def test_updating_a_job_that_is_not_there_is_an_error(self, store: JobStore) -> None:
        job = add_job(store)
        store.remove_job("job")
        with pytest.raises(JobLookupError):
            store.update_job(job)
        assert store.lookup_job("job") is None

    def test_an_update_read_before_remove_and_add_is_refused(self, store: JobStore) -> None:
        old = add_job(store, max_instances=1)
        store.remove_job("job")
        new = add_job(store, max_instances=2)
        old.max_instances = 3
        with pytest.raises(VersionConflict):
            store.update_job(old)
        assert (stored(store).max_instances, stored(store).incarnation) == (2, new.incarnation)

    def test_a_removed_job_is_gone(self, store: JobStore) -> None:
        add_job(store)
        store.remove_job("job")
        assert store.lookup_job("job") is None
        assert store.get_all_jobs() == []
        assert store.due(10, 0).jobs == []
        assert store.due(0, 0).next_at is None

    def test_removing_a_job_that_is_not_there_is_an_error(self, store: JobStore) -> None:
        with pytest.raises(JobLookupError) as caught:
            store.remove_job("nobody")
        assert caught.value.job_id == "nobody"

    def test_all_jobs_are_removed_together(self, store: JobStore) -> None:
        store.add_jobs([make_job(store, f"job-{n}", due_in=None if n % 2 else n) for n in range(10)])
        store.remove_all_jobs()
        assert store.get_all_jobs() == []
        assert store.due(10, 0).jobs == []
        assert store.due(0, 0).next_at is None

    def test_what_is_handed_out_or_in_is_not_shared_with_the_store(self, store: JobStore) -> None:
        added = add_job(store, max_instances=1)
        for job in (added, stored(store), store.get_all_jobs()[0], due_one(store).job):
            job.max_instances, job.at = 99, None
        assert stored(store).max_instances == 1
        assert stored(store).at is not None

    # -- times -------------------------------------------------------------------------------------------------

    def test_all_jobs_are_listed_by_time_with_paused_ones_last(self, store: JobStore) -> None:
        for name, due_in in (("late", 500), ("paused", None), ("past", -500), ("soon", 5), ("idle", None)):
            add_job(store, name, due_in=due_in)
        jobs = store.get_all_jobs()
        assert [job.id for job in jobs[:3]] == ["past", "soon", "late"]
        assert sorted(job.id for job in jobs[3:]) == ["idle", "paused"]
        assert [job.at for job in jobs[3:]] == [None, None]

    def test_the_next_time_is_the_earliest_of_all_jobs(self, store: JobStore) -> None:
        assert store.due(0, 0).next_at is None
        assert store.get_next_run_time() is None
        add_job(store, "paused", due_in=None)
        assert store.due(0, 0).next_at is None
        later, sooner = add_job(store, "later", due_in=500), add_job(store, "sooner", due_in=100)
        assert store.due(0, 0).next_at == sooner.at
        assert sooner.at is not None
        assert store.get_next_run_time() == from_us(sooner.at)
        sooner.at += 900 * SECOND
        store.update_job(sooner)
        assert store.due(0, 0).next_at == store.due(10, 0).next_at == later.at
        store.remove_job("sooner")
        assert store.due(0, 0).next_at == later.at

    def test_the_next_time_counts_jobs_that_were_handed_out(self, store: JobStore) -> None:
        job = add_job(store)
        assert len(store.due(10, LEASE).jobs) == 1
        assert store.due(0, 0).next_at == job.at

    def test_due_jobs_are_listed_up_to_a_time_earliest_first(self, store: JobStore) -> None:
        for name, due_in in (("third", 30), ("first", -30), ("fourth", 400), ("second", 10), ("paused", None)):
            add_job(store, name, due_in=due_in)
        until = from_us(store.beat() + 60 * SECOND)
        assert [job.id for job in store.get_due_jobs(until)] == ["first", "second", "third"]

    def test_times_are_kept_to_the_microsecond(self, store: JobStore) -> None:
        far = to_us(datetime(2199, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
        for name, at in (("now", 1_763_000_000_123_457), ("far", far), ("first", 1)):
            add_job(store, name, at=at, nominal=at - 1)
            assert (stored(store, name).at, stored(store, name).nominal) == (at, at - 1)
        assert [job.at for job in store.get_all_jobs()] == [1, 1_763_000_000_123_457, far]

    def test_jobs_a_microsecond_apart_are_in_order(self, store: JobStore) -> None:
        for number in (3, 1, 2):
            add_job(store, f"job-{number}", at=1_763_000_000_000_000 + number)
        assert [due.job.id for due in store.due(10, 0).jobs] == ["job-1", "job-2", "job-3"]

    def test_jobs_of_different_time_zones_are_ordered_by_instant(self, store: JobStore) -> None:
        zones = {"a": "Pacific/Auckland", "b": "America/Los_Angeles", "c": "Asia/Kolkata"}
        for place, (name, zone) in enumerate(zones.items()):
            add_job(store, name, due_in=300 - 100 * place, zone=zone)
        jobs = store.get_all_jobs()
        assert [job.id for job in jobs] == ["c", "b", "a"]
        for job in jobs:
            assert job.at is not None
            moment = job.next_run_time
            assert moment is not None
            assert to_us(moment) == job.at
            assert moment.utcoffset() == from_us(job.at).astimezone(ZoneInfo(zones[job.id])).utcoffset()

    def test_a_paused_job_is_not_due_until_it_is_resumed(self, store: JobStore) -> None:
        job = add_job(store)
        at = job.at
        job.at = None
        store.update_job(job)
        assert (store.due(10, 0).jobs, store.due(0, 0).next_at, stored(store).at) == ([], None, None)
        job.at = at
        store.update_job(job)
        assert due_one(store).at == store.due(0, 0).next_at == at

    # -- several at once ---------------------------------------------------------------------------------------

    def test_jobs_are_read_by_their_ids_once_each_by_next_run_time(self, store: JobStore) -> None:
        for name, due_in in (("paused", None), ("later", 100.0), ("sooner", 50.0), ("other", 10.0)):
            add_job(store, name, due_in=due_in)
        found = store.get_jobs(["paused", "later", "nobody", "sooner", "later"]).jobs
        assert [job.id for job in found] == ["sooner", "later", "paused"]
        assert [job.version for job in found] == [stored(store, job.id).version for job in found]
        assert store.get_jobs([]).jobs == []

    def test_the_jobs_of_some_ids_are_removed_and_counted(self, store: JobStore) -> None:
        for name in ("one", "two", "three"):
            add_job(store, name)
        assert store.remove_jobs(["one", "nobody", "three", "one"]) == 2
        assert [job.id for job in store.get_jobs().jobs] == ["two"]
        assert store.remove_jobs([]) == 0
        assert store.remove_jobs() == 1
        assert (store.get_jobs().jobs, store.due(0, 0).next_at) == ([], None)

    def test_all_that_was_set_aside_is_removed_and_nothing_else(self, store: JobStore) -> None:
        for name in ("one", "two", "three"):
            job = add_job(store, name)
            if name != "three":
                store.set_aside(name, job.version, "unreadable")
        assert [broken.id for broken in store.get_jobs(["two", "three"], broken=True).broken] == ["two"]
        assert store.remove_jobs(broken=True) == 2
        assert store.get_jobs(broken=True).broken == []
        assert [job.id for job in store.get_jobs().jobs] == ["three"]

    # -- set aside ---------------------------------------------------------------------------------------------

    def test_a_job_set_aside_is_out_of_the_way_and_listed_with_the_reason(self, store: JobStore) -> None:
        job = add_job(store)
        add_job(store, "other", due_in=100)
        assert store.set_aside("job", job.version, "the signature is wrong") is True
        [aside] = store.get_jobs(broken=True).broken
        assert (aside.id, aside.reason) == ("job", "the signature is wrong")
        assert aside.payload is not None
        assert store.lookup_job("job") is None
        assert [job.id for job in store.get_all_jobs()] == ["other"]
        assert store.due(10, 0).jobs == []
        assert store.due(0, 0).next_at == stored(store, "other").at

    def test_a_job_is_set_aside_only_at_the_version_that_was_read(self, store: JobStore) -> None:
        job = add_job(store)
        read = job.version
        store.update_job(job)
        assert store.set_aside("job", read, "unreadable") is False
        assert store.set_aside("nobody", 1, "unreadable") is False
        assert store.get_jobs(broken=True).broken == []
        assert stored(store).version == job.version

    def test_a_job_set_aside_cannot_be_fired(self, store: JobStore) -> None:
        job = add_job(store)
        due = due_one(store)
        store.set_aside("job", job.version, "unreadable")
        assert fire(store, due) is None
        assert store.lookup_job("job") is None

    def test_a_restored_job_is_back_as_it_was(self, store: JobStore) -> None:
        job = add_job(store, max_instances=6)
        due = due_one(store)
        assert fire(store, due) is not None
        job = stored(store)
        store.set_aside("job", job.version, "unreadable")
        assert store.set_aside("job", 0, None) is True
        back = stored(store)
        assert (back.at, back.nominal, back.incarnation) == (job.at, job.nominal, job.incarnation)
        assert (back.max_instances, back.trigger) == (6, job.trigger)
        assert store.get_jobs(broken=True).broken == []
        store.shift_clock(120)
        assert (due_one(store).version, due_one(store).unfinished) == (back.version, 1)

    def test_what_was_set_aside_can_be_discarded(self, store: JobStore) -> None:
        for name in ("job", "other"):
            store.set_aside(name, add_job(store, name).version, "unreadable")
        store.set_aside("job", add_job(store).version, "unreadable")
        add_job(store)
        assert store.remove_jobs(["job"], broken=True) == 2
        assert [broken.id for broken in store.get_jobs(broken=True).broken] == ["other"]
        assert stored(store).id == "job"
        assert store.remove_jobs(["job"], broken=True) == 0
        assert store.set_aside("job", 0, None) is False
        assert store.set_aside("other", 0, None) is True

    def test_what_is_not_set_aside_cannot_be_restored(self, store: JobStore) -> None:
        add_job(store)
        assert store.set_aside("job", 0, None) is False
        assert store.set_aside("nobody", 0, None) is False

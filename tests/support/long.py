"""Which tests run only when they are asked for."""

LONG = {
    "tests/cli/test_next_steps.py::test_next_steps_of_findings_run_as_printed_by_a_relative_and_an_absolute_name[every case]",
    "tests/golden/test_export.py::test_cut_into_many_tasks_and_directories_the_rows_stay_the_same[crash-5.5.0]",
    "tests/golden/test_rocksdb.py::test_the_real_broker_starts_on_the_result_and_serves_it[files]",
    "tests/interop/test_broker.py::test_a_broker_serves_a_fixture_and_stops_in_order[5.5.0]",
    "tests/interop/test_broker.py::test_a_killed_broker_leaves_its_abort_file",
    "tests/interop/test_convert.py::test_a_real_broker_starts_on_it_and_answers[dledger-mixed-5.5.0]",
    "tests/interop/test_engine.py::test_a_running_broker_keeps_us_out_and_nothing_changes[5.5.0]",
    "tests/interop/test_engine.py::test_a_store_goes_to_and_fro_between_us_and_a_broker[5.5.0-5.5.0-5.5.0]",
    "tests/interop/test_mirror.py::test_a_real_slave_follows_a_served_store[5.5.0]",
    "tests/interop/test_mirror.py::test_the_copy_of_a_real_master_is_its_log_and_verifies_clean[5.5.0]",
    "tests/interop/test_namesrv.py::test_topics_that_the_tools_make_on_a_real_broker_are_found",
    "tests/interop/test_pop.py::test_what_was_popped_and_not_acknowledged_comes_again_after_kill_9[ours to ours]",
    "tests/interop/test_pop.py::test_what_was_popped_and_not_acknowledged_comes_again_after_kill_9[real to ours]",
    "tests/interop/test_rebuild.py::test_a_broker_starts_on_rebuilt_files_and_rebuilt_configuration[5.5.0]",
    "tests/interop/test_repair.py::test_a_broker_runs_on_a_changed_store_keeps_changes_out_and_lets_finalize_in[5.5.0]",
    "tests/interop/test_replay.py::test_the_real_broker_stores_what_is_sent_again_and_its_refusals_are_told_in_its_words",
    "tests/interop/test_rocksdb_config.py::test_what_a_broker_keeps_in_rocksdb_is_read_and_goes_to_files_and_back",
    "tests/interop/test_runbooks.py::test_a_backup_beside_a_living_broker_comes_back_and_is_served",
    "tests/interop/test_runbooks.py::test_a_killed_broker_starts_at_once_after_the_runbook",
    "tests/interop/test_serve.py::test_a_directory_changes_hands_under_load_and_nothing_is_lost[4.9.7-five rounds]",
    "tests/interop/test_serve.py::test_a_directory_changes_hands_under_load_and_nothing_is_lost[5.5.0-five rounds]",
    "tests/interop/test_serve.py::test_what_waits_in_a_store_is_delivered_once_by_whoever_opens_it_next[real]",
    "tests/interop/test_timer_book.py::test_what_waits_or_was_cut_off_is_delivered_once_after_the_runbook",
    "tests/spark/test_kinds.py::test_the_source_gives_the_rows_of_the_plain_export[equeue-torn]",
    "tests/spark/test_shipping.py::test_a_wheel_travels_with_a_job_to_executors_without_mqtool",
    "tests/unit/export/test_commit.py::test_an_export_killed_at_any_step_and_run_again_loses_and_repeats_nothing[alone]",
    "tests/unit/export/test_commit.py::test_an_export_killed_at_any_step_and_run_again_loses_and_repeats_nothing[rewound]",
}
"""Tests that start brokers or processes again and again, a quarter of a minute to two each; most have a shorter sibling
with another release or store. MQTOOL_LONG=1 runs them."""

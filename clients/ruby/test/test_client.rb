require_relative "support"
require "minitest/autorun"

class Widget
  include GlobalID::Identification
  attr_reader :id

  def initialize(id) = @id = id
end

class Note < Windlass::Job
  rust_class "note"
end

class Limited < Windlass::Job
  queue_as :rust
  limit_runs to: 2, key: ->(user:, **) { user }, group: "mail", on_conflict: :discard
  unique_id ->(user:, **) { "welcome/#{user}" }, on_conflict: :replace
  at_most_once
end

class ClientTest < Minitest::Test
  def connection = ActiveRecord::Base.connection
  def postgres? = connection.adapter_name == "PostgreSQL"

  def setup
    %w[ready scheduled blocked].each { |place| connection.execute("DELETE FROM solid_queue_#{place}_executions") }
    connection.execute("DELETE FROM windlass_unique_jobs")
    connection.execute("DELETE FROM solid_queue_jobs")
  end

  def jobs
    connection.select_all("SELECT * FROM solid_queue_jobs ORDER BY id").to_a
  end

  def refused(message, &block)
    error = assert_raises(Windlass::EnqueueError, &block)
    assert_includes error.message, message
    assert_empty jobs
  end

  def test_keywords_are_the_fields
    job = Note.perform_later(text: "it's ✓", "n": 1)
    row = jobs.fetch(0)
    assert_equal ["note", "default", 0], row.values_at("class_name", "queue_name", "priority")
    assert_equal({ "text" => "it's ✓", "n" => 1 }, JSON.parse(row["arguments"]))
    assert_equal row["id"], job.provider_job_id if postgres?
    assert_nil row["active_job_id"]
    Note.perform_later
    assert_equal "{}", jobs.fetch(1)["arguments"]
  end

  def test_each_type_arrives_as_active_job_has_it_in_rust
    at = Time.utc(2026, 11, 25, 1, 2, 3.5r)
    Note.perform_later(gid: Widget.new(7), sym: :a, time: at, zone: at.in_time_zone("UTC"), date: Date.new(2026, 11, 25),
                       dec: BigDecimal("0.1"), wait: 5.minutes, mod: Note, list: [nil, true, 1.5], hash: { "a" => { b: 2**63 } })
    assert_equal(
      { "gid" => "gid://app/Widget/7", "sym" => "a", "time" => "2026-11-25T01:02:03.500000000Z",
        "zone" => "2026-11-25T01:02:03.500000000Z", "date" => "2026-11-25", "dec" => "0.1", "wait" => 300, "mod" => "Note",
        "list" => [nil, true, 1.5], "hash" => { "a" => { "b" => 2**63 } } },
      JSON.parse(jobs.fetch(0)["arguments"])
    )
  end

  def test_what_rust_cannot_read_is_refused
    refused("keywords only") { Note.perform_later("text") }
    refused("keywords only") { Note.perform_later({ text: "a hash" }) }
    refused("keywords only") { Note.perform_later("text", n: 1) }
    refused("`n` is an integer of more than 64 bits") { Note.perform_later(n: 2**64) }
    refused("`a.b[1]` is an object of Range") { Note.perform_later(a: { b: [1, 1..2] }) }
    refused("`x` is NaN") { Note.perform_later(x: Float::NAN) }
    refused("`text` contains a NUL") { Note.perform_later(text: "a\0b") }
    refused("`text` is no valid UTF-8") { Note.perform_later(text: "\xff") }
    refused("`h` has a key of Integer") { Note.perform_later(h: { 1 => 2 }) }
    refused("65536") { Note.perform_later(text: "x" * 70_000) }
    refused("queue") { Note.set(queue: "").perform_later(text: "") } unless ActiveJob.version < Gem::Version.new("7.1")
  end

  def test_options_of_a_call
    Note.set(queue: :slow, priority: 7, wait_until: Time.utc(2999, 1, 2, 3, 4, 5)).perform_later(text: "later")
    row = jobs.fetch(0)
    assert_equal ["slow", 7], row.values_at("queue_name", "priority")
    assert_equal 1, connection.select_value("SELECT count(*) FROM solid_queue_scheduled_executions")
    assert_includes row["scheduled_at"].to_s, "2999-01-02 03:04:05"
  end

  def test_options_of_a_class
    Limited.perform_later(user: "ada")
    Limited.perform_later(user: "ada", n: 2)
    row = jobs.fetch(0)
    assert_equal 1, jobs.size
    assert_equal ["Limited", "rust", "mail/ada", 2, "discard", "welcome/ada"],
                 row.values_at("class_name", "queue_name", "concurrency_key", "concurrency_limit", "concurrency_on_conflict", "unique_id")
    assert_includes [true, 1], row["at_most_once"]
    assert_equal 2, JSON.parse(row["arguments"])["n"]
  end

  def test_a_rollback_takes_the_job_along
    ActiveRecord::Base.transaction do
      Note.perform_later(text: "never")
      raise ActiveRecord::Rollback
    end
    assert_empty jobs
  end

  def test_many_are_enqueued_or_none
    queue = Windlass::Adapter.new
    assert_equal 2, queue.enqueue_all([Note.new(**{ text: "a" }), Note.new(**{ text: "b" })])
    assert_equal 2, jobs.size
    assert_raises(Windlass::EnqueueError) { queue.enqueue_all([Note.new(**{ text: "c" }), Note.new(**{ n: 2**70 })]) }
    assert_equal 2, jobs.size
  end

  def test_ruby_does_not_perform_it
    error = assert_raises(NotImplementedError) { Note.perform_now(text: "here") }
    assert_includes error.message, "performed in Rust"
  end
end

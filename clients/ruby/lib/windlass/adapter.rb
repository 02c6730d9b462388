module Windlass
  # The queue adapter of Windlass::Job: enqueues by Windlass' functions and views.
  class Adapter
    COLUMNS = {
      class: "text", arguments: "text", queue: "text", priority: "integer", run_at: "timestamptz", unique_id: "text",
      on_conflict: "text", concurrency_key: "text", concurrency_group: "text", concurrency_limit: "bigint",
      concurrency_on_conflict: "text", at_most_once: "boolean"
    }.freeze

    def enqueue(job)
      enqueue_at(job, nil)
    end

    def enqueue_at(job, timestamp)
      row = job.windlass_row
      row[:run_at] = Time.at(timestamp).utc.iso8601(6) if timestamp
      job.provider_job_id = Windlass.connection_class.connection.then { |connection| insert(connection, row) }
    rescue ActiveRecord::StatementInvalid => error
      raise unless error.message.include?("cannot enqueue")

      raise EnqueueError, error.message[/cannot enqueue.*/]
    end

    # For `perform_all_later`. All are enqueued, or none.
    def enqueue_all(jobs)
      Windlass.connection_class.transaction(requires_new: true) do
        jobs.each { |job| enqueue_at(job, job.scheduled_at&.to_f) }
      end
      jobs.each { |job| job.successfully_enqueued = true if job.respond_to?(:successfully_enqueued=) }.size
    end

    # For logs and instrumentation.
    def queue_adapter_name = "windlass"

    # Rails asks this before 8.0: a job exists when the caller's transaction commits.
    def enqueue_after_transaction_commit? = false

    private

    def insert(connection, row)
      row = row.compact
      if connection.adapter_name.match?(/postg/i)
        values = row.map { |name, value| "#{name} => CAST(#{connection.quote(value)} AS #{COLUMNS.fetch(name)})" }
        connection.select_value("SELECT windlass_enqueue_v1(#{values.join(", ")})", "Windlass")
      else
        values = row.values.map { |value| connection.quote(value) }
        connection.execute("INSERT INTO windlass_enqueue_v1 (#{row.keys.join(", ")}) VALUES (#{values.join(", ")})", "Windlass")
        nil # SQLite tells no id of what a view's trigger inserts
      end
    end
  end
end

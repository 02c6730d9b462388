# frozen_string_literal: true

module ActiveJob
  module QueueAdapters
    # Enqueues in the transaction of the caller, by the SQL interface of Windlass.
    class WindlassAdapter
      # A job belongs to the transaction, so there is nothing to wait for.
      def enqueue_after_transaction_commit? = false

      def enqueue(job)
        columns = row(job)
        job.provider_job_id = inserting { |connection| insert(connection, columns) }
      end

      def enqueue_at(job, timestamp)
        job.scheduled_at ||= timestamp
        enqueue(job)
      end

      # Enqueues all or none; lists of one class are one statement. Returns how many there are.
      def enqueue_all(jobs)
        rows = jobs.map { |job| row(job) } # all are looked at before the first is enqueued
        inserting do |connection|
          jobs.zip(rows).chunk_while { |(_, one), (_, next_one)| one["class"] == next_one["class"] }.each do |chunk|
            ids = insert_list(connection, chunk.first.last["class"], chunk.map { |_, columns| columns.except("class") })
            chunk.each_with_index do |(job, _), place|
              job.provider_job_id = ids[place]
              job.successfully_enqueued = true if job.respond_to?(:successfully_enqueued=)
            end
          end
        end
        jobs.size
      end

      # Emits an event whose payload is JSON text.
      def emit(name, payload)
        inserting do |connection|
          values = [name, payload].map { |value| connection.quote(value) }.join(", ")
          into = "INSERT INTO windlass_events_emit (name, payload) VALUES (#{values})"
          run(connection, Windlass.postgres?(connection) ? "SELECT 1 FROM windlass_emit(#{values})" : into)
        end
        nil
      end

      private

      def row(job)
        return job.windlass_columns if job.is_a?(Windlass::Job)

        raise Windlass::ArgumentError, "#{job.class} is no Windlass::Job, and only those are performed in Rust"
      end

      def inserting
        connection = Windlass.connection_class.connection
        connection.transaction { yield connection }
      rescue ActiveRecord::StatementInvalid => error
        raise unless (said = refusal(error.cause))

        raise Windlass::EnqueueError, said
      end

      # Returns what the SQL interface says of what it refuses. `nil` for all other errors.
      def refusal(error)
        return error.message if error && error.message.start_with?("cannot enqueue", "cannot emit")
        return unless error.respond_to?(:result) && error.result

        said = error.result.error_field(PG::PG_DIAG_MESSAGE_PRIMARY)
        is_value = error.result.error_field(PG::PG_DIAG_SQLSTATE).start_with?("22")
        said if is_value || said.start_with?("cannot enqueue", "cannot emit")
      end

      # The statements are not run by `select_value`: the query cache would answer a second one itself.
      def run(connection, sql)
        connection.exec_query(sql, "Windlass Enqueue").rows.map(&:first).tap { connection.clear_query_cache }
      end

      def insert(connection, columns)
        values = columns.transform_values { |value| connection.quote(value) }
        if Windlass.postgres?(connection)
          # As texts: a number that is too large would be of a type for which there is no function.
          named = columns.map { |name, value| "#{name} => #{connection.quote(value.to_s)}" }
          return run(connection, "SELECT windlass_enqueue_v2(#{named.join(", ")})").first
        end
        run(connection, "INSERT INTO windlass_enqueue_v2 (#{values.keys.join(", ")}) VALUES (#{values.values.join(", ")})")
        found = "SELECT max(id) FROM solid_queue_jobs" # the transaction has the lock of the file, and ids only grow
        found = nil if columns["concurrency_on_conflict"] == "discard" # it may have left no job
        found = "SELECT job_id FROM windlass_unique_jobs WHERE unique_id = #{values["unique_id"]}" if columns["unique_id"]
        found && run(connection, found).first
      end

      def insert_list(connection, name, list)
        # What is JSON is text already.
        list = list.map do |columns|
          columns.map { |key, value| "#{JSON.generate(key)}:#{Windlass::Job::JSON_COLUMNS.include?(key) ? value : JSON.generate(value)}" }
        end
        jobs = connection.quote("[#{list.map { |columns| "{#{columns.join(",")}}" }.join(",")}]")
        name = connection.quote(name)
        return run(connection, "SELECT windlass_enqueue_many_v2(#{name}, #{jobs})") if Windlass.postgres?(connection)

        run(connection, "INSERT INTO windlass_enqueue_many_v2 (class, jobs) VALUES (#{name}, #{jobs})")
        [] # SQLite does not tell
      end
    end
  end
end

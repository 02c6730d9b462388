# frozen_string_literal: true

module Windlass
  # Completes the tables of Solid Queue, as `windlass migrate` does, by what the migrations in Rust lead to.
  module Schema
    LOCK = 0x7769_6e64_6c61_7373 # that of `windlass migrate`
    FAMILIES = { "varchar" => "text", "character varying" => "text", "char" => "text", "character" => "text",
                 "timestamp without time zone" => "timestamp", "datetime" => "timestamp" }.freeze
    INTEGERS = %w[bigint boolean int].freeze

    # Adds what is missing, in one transaction, and returns it, one line each.
    def self.migrate(connection = Windlass.connection_class.connection)
      # Most calls end here, and have locked nothing. Within a transaction, the lock of a SQLite file comes before any look.
      return [] if !connection.transaction_open? && Look.new(connection).steps.empty?

      connection.transaction do
        take_turn(connection)
        steps = Look.new(connection).steps
        steps.each { |step| step["run"].each { |sql| connection.execute(sql) } }
        steps.filter_map { |step| step["what"] }
      end.tap { connection.schema_cache.clear! }
    end

    # A session that waits in a statement would hold up an index that another migration builds CONCURRENTLY.
    def self.take_turn(connection)
      unless Windlass.postgres?(connection)
        connection.execute("CREATE TABLE windlass_turn (id integer)") # takes the lock of the file
        return connection.execute("DROP TABLE windlass_turn")
      end
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 3_600
      until connection.uncached { connection.select_value("SELECT pg_try_advisory_xact_lock(#{LOCK})") }
        late = Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
        raise SchemaError, "another migration has been running for an hour" if late

        sleep(0.03)
      end
    end

    # What a database has, and the steps that complete it.
    class Look
      attr_reader :steps

      def initialize(connection)
        @connection = connection
        @postgres = Windlass.postgres?(connection)
        schema = JSON.parse(File.read(File.join(__dir__, "schema.json"))).fetch(@postgres ? "postgresql" : "sqlite")
        @columns = rows(schema["columns"]).to_h { |column| [[column["of"], column["name"]], column] }
        @tables = @columns.keys.map(&:first).uniq
        @others = rows(schema["others"])
        plan(schema["items"], schema["versions"])
        close(schema["open_functions"])
      end

      private

      def plan(items, versions)
        applied = @tables.include?("windlass_schema_migrations") ? rows("SELECT version FROM windlass_schema_migrations") : []
        applied = applied.map { |row| row["version"] }
        known = versions.map { |one| one["version"] }
        unknown = applied - known
        refuse(unknown.min) if unknown.any? && unknown.min < known.max
        missing = versions.reject { |one| applied.include?(one["version"]) }
        # A newer program may have replaced items of this one.
        @steps = unknown.any? && missing.empty? ? [] : items.filter_map { |item| lacking(item) }
        @steps = @steps.partition { |step| step["vital"] }.flatten(1)
        @steps += missing.flat_map { |one| one["once"] }.map { |sql| { "run" => [sql] } }
      end

      def refuse(version)
        raise SchemaError, "the tables were made by a version of Windlass before its first release (migration " \
                           "#{version}), and are not brought up to date: use an empty database, or drop all that is " \
                           "named windlass_* in this one"
      end

      # A restore without rights gives all functions to every role.
      def close(functions)
        return unless functions

        @steps += rows(functions["look"]).map do |open|
          { "what" => "function #{open["name"]}", "run" => [functions["run"]] }
        end
      end

      def lacking(item)
        kind, table, name = item.values_at("kind", "table", "name")
        case kind
        when "table" then item unless @tables.include?(table)
        when "column" then column(item) if @tables.include?(table)
        when "index" then index(item, other("index", name))
        when "option" then item if @others.none? { |one| one.values_at("kind", "of", "name") == [kind, table, name] }
        else item unless other(kind, name)
        end
      end

      def index(item, found)
        return item unless found
        return if true?(found["valid"])

        item.merge("run" => ["DROP INDEX #{item["name"]}", *item["run"]])
      end

      def column(item)
        return item unless (found = @columns[item.values_at("table", "name")])

        fault = fault(item["is"], found)
        return unless fault

        raise SchemaError, "the #{item["what"]} #{fault}: let `windlass migrate` change it, or change it by hand"
      end

      def fault(wanted, found)
        family = family(found["kind"])
        return "is #{family}, not #{wanted["family"]}" unless family == wanted["family"]
        return (true?(found["generated"]) ? nil : "is not generated") if wanted["generated"]

        default = found["standard"]&.split("::")&.first
        return "has the default #{default.inspect}" if wanted["default"] && wanted["default"] != default
        return "allows NULL" if wanted["not_null"] && wanted["default"] && true?(found["nullable"])

        "does not allow NULL" unless wanted["not_null"] || true?(found["nullable"])
      end

      def family(kind)
        kind = kind.split("(").first.strip
        kind = FAMILIES.fetch(kind, kind)
        !@postgres && INTEGERS.include?(kind) ? "integer" : kind
      end

      def other(kind, name) = @others.find { |one| one.values_at("kind", "name") == [kind, name] }

      def true?(value) = [true, 1, "t"].include?(value)

      def rows(sql) = @connection.uncached { @connection.select_all(sql, "Windlass Schema").to_a }
    end
  end
end

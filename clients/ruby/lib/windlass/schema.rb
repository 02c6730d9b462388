require "json"

module Windlass
  # Completes the tables of Solid Queue with what Windlass needs, as `windlass migrate` does.
  module Schema
    DIALECTS = JSON.parse(File.read(File.join(__dir__, "schema.json"))).freeze

    # Adds what is missing, in whatever order Rails and Windlass have migrated before. It can run again at any time.
    def self.migrate(connection)
      steps = DIALECTS.fetch(connection.adapter_name.match?(/postg/i) ? "postgres" : "sqlite")
      made = steps.fetch("items").filter do |step|
        next if exists?(connection, *step.fetch("item"))

        step.fetch("statements").each { |statement| connection.execute(statement) }
      end
      applied = connection.select_values("SELECT version FROM windlass_schema_migrations")
      steps.fetch("versions").except(*applied).each_value do |statements|
        statements.each { |statement| connection.execute(statement) }
      end
      made.map { |step| step.fetch("item").compact.join(" ") }
    end

    def self.exists?(connection, kind, name, table)
      case kind
      when "table" then connection.table_exists?(name)
      when "view" then connection.view_exists?(name)
      when "column" then connection.columns(table).any? { |column| column.name == name }
      when "index" then connection.index_name_exists?(table, name)
      else connection.select_value(find(connection, kind, connection.quote(name), connection.quote(table)))
      end
    end

    def self.find(connection, kind, name, table)
      return "SELECT 1 FROM sqlite_schema WHERE type = '#{kind}' AND name = #{name}" unless connection.adapter_name.match?(/postg/i)

      case kind
      when "function"
        "SELECT 1 FROM pg_proc WHERE proname = #{name} AND pronamespace = current_schema()::regnamespace LIMIT 1"
      when "trigger"
        "SELECT 1 FROM pg_trigger WHERE tgname = #{name} AND tgrelid = #{table}::regclass"
      when "option"
        "SELECT 1 FROM pg_class WHERE oid = #{table}::regclass AND array_to_string(reloptions, ',') LIKE '%' || #{name} || '=%'"
      end
    end
    private_class_method :exists?, :find
  end
end

# frozen_string_literal: true

module Windlass
  # Keeps the tables of Windlass out of `db/schema.rb`, which cannot say all that they need.
  class Railtie < ::Rails::Railtie
    initializer "windlass.ignore_tables" do
      ActiveSupport.on_load(:active_record) do
        ::ActiveRecord::SchemaDumper.ignore_tables |= [/\Awindlass_/] if defined?(::ActiveRecord::SchemaDumper)
      end
    end
  end
end

package rekappa;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreMap;
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * Spark's state store in memory, its files and all, with another map inside: the rows of a version lie in pages, in the
 * order in which they came (RowsInPages). Spark's own keeps five objects for each row, in the order of their hashes: the
 * collector goes through all of them, and to look for what has expired is to jump through all of the memory.
 *
 * Stores that are scanned by a prefix of their keys are left to Spark.
 */
public final class StateInPages extends HDFSBackedStateStoreProvider {
    private boolean scanned;
    private int keyFields;
    private int valueFields;

    public void init(
        StateStoreId id, StructType key, StructType value, KeyStateEncoderSpec encoder, boolean columnFamilies,
        StateStoreConf settings, Configuration hadoop, boolean multipleValues, Option provider
    ) {
        this.scanned = !(encoder instanceof NoPrefixKeyStateEncoderSpec);
        this.keyFields = key.length();
        this.valueFields = value.length();
        super.init(id, key, value, encoder, columnFamilies, settings, hadoop, multipleValues, provider);
    }

    public StateStore getStore(long version, Option checkpoint) {
        if (this.scanned || checkpoint.isDefined()) {
            return super.getStore(version, checkpoint);
        }
        RowsInPages rows = new RowsInPages(this.keyFields, this.valueFields);
        if (version != 0) {
            this.fill(rows, version);
        }
        return this.new HDFSBackedStateStore(version, rows);
    }

    private void fill(RowsInPages rows, long version) {
        Object known = this.getLoadedMaps().get(Long.valueOf(version));
        if (known != null) {
            rows.putAll((HDFSBackedStateStoreMap) known);
            return;
        }
        // Read from its files, as after a restart, or when a task is tried again; refused here if it is not there.
        ReadStateStore read = super.getReadStore(version, Option.empty());
        StateStoreIterator all = read.iterator("default");
        while (all.hasNext()) {
            UnsafeRowPair pair = (UnsafeRowPair) all.next();
            rows.put(pair.key(), pair.value());
        }
        read.release();
    }
}
